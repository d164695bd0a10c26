"""Threads, order, budget, progress, cancellation."""

import contextlib
import threading
import time

import pytest

import croupier
from croupier import runtime as runtime_module
from croupier.runtime import Expected, Ordered, Progress, Runtime, available_memory, usable_cpus, used_memory


def test_map_keeps_the_order_and_uses_the_threads():
    seen = set()

    def work(number):
        seen.add(threading.get_ident())
        time.sleep(0.002 * (number % 3))
        return number * number

    with Runtime(workers=3) as runtime:
        assert list(runtime.map(work, range(50))) == [number * number for number in range(50)]
    assert len(seen) > 1


def test_map_takes_only_a_few_items_ahead():
    taken = 0

    def items():
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield number

    with Runtime(workers=2) as runtime:
        results = runtime.map(lambda number: time.sleep(0.001), items())
        for _ in range(10):
            next(results)
        assert taken < 30


def test_ordered_stays_within_its_budget():
    lock, under_way, most = threading.Lock(), 0, 0

    def work(weight):
        nonlocal under_way, most
        with lock:
            under_way += weight
            most = max(most, under_way)
        time.sleep(0.001)
        with lock:
            under_way -= weight
        return weight

    with Runtime(workers=4) as runtime:
        ordered = Ordered(runtime, budget=10)
        results = []
        for weight in [1, 9, 3, 3, 3, 12, 1, 1, 10] * 5:  # 12 is let through alone
            results += ordered.put(weight, work, weight)
        results += ordered.drain()
    assert results == [1, 9, 3, 3, 3, 12, 1, 1, 10] * 5
    assert most <= 12


def test_an_error_comes_out_where_its_result_would():
    def work(number):
        if number == 3:
            raise ValueError("three")
        return number

    with Runtime(workers=2) as runtime:
        results = runtime.map(work, range(10))
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="three"):
            next(results)


def test_cancellation_stops_work_that_checks():
    cancel = threading.Event()
    runtime = Runtime(workers=2, cancel=cancel)

    def work(number):
        for _ in range(1000):
            runtime.check()
            time.sleep(0.005)

    began = time.monotonic()
    with runtime:
        results = runtime.map(work, range(4))
        threading.Timer(0.05, cancel.set).start()
        with pytest.raises(croupier.CancelledError):
            next(results)
    assert time.monotonic() - began < 2


def test_verify_can_be_cancelled_and_reports_progress(tmp_path):
    with croupier.writer(tmp_path / "x", shards=4) as out:
        out.write_many([bytes(1000)] * 20_000)
    told: list[Progress] = []
    reports = list(croupier.verify(tmp_path, progress=told.append))
    assert sum(report.records for report in reports) == 20_000
    assert told[0].done == 0
    assert told[-1].done == told[-1].total == sum(report.file_bytes for report in reports)
    assert told[-1].records == 20_000
    assert [step.done for step in told] == sorted(step.done for step in told)
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(croupier.CancelledError):
        list(croupier.verify(tmp_path, cancel=cancel))


@pytest.fixture
def told(monkeypatch):
    """A runtime whose clock a test moves, and what it told."""
    now, states = [1000.0], []
    monkeypatch.setattr(runtime_module.time, "monotonic", lambda: now[0])

    def after(seconds):
        now[0] += seconds

    return Runtime(workers=1, progress=states.append), after, states


def test_rates_and_the_time_left_of_a_job_of_one_phase(told):
    runtime, after, states = told
    runtime.phase("verify", 1000)
    assert (states[-1].rate, states[-1].left) == (None, None)
    after(2)
    runtime.advance(100)
    assert states[-1].rate == pytest.approx(50)
    assert states[-1].left == pytest.approx(18)
    assert states[-1].limit is None
    assert states[-1].memory == pytest.approx(used_memory(), rel=0.5)
    for _ in range(100):  # the rate is that of the last seconds, the rest that of the whole phase
        after(0.1)
        runtime.advance(2)
    assert states[-1].rate == pytest.approx(20)
    assert states[-1].left == pytest.approx(12 * 700 / 300)


def test_the_time_left_is_that_of_all_phases(told):
    runtime, after, states = told
    runtime.expect([Expected("read", 10, 200.0), Expected("sort", 0), Expected("write", 30)])
    runtime.phase("read", 1000)
    assert states[-1].left == pytest.approx(40)
    assert states[-1].limit == 200
    after(5)
    runtime.advance(500)
    assert states[-1].left == pytest.approx(35), "as expected"
    after(15)
    runtime.advance(500)
    assert states[-1].left == pytest.approx(30 * (20 + 2) / (10 + 2)), "twice as slow, so will be the rest"
    runtime.phase("sort", 10, "records")
    runtime.phase("write", 1000)
    assert states[-1].left == pytest.approx(30 * 22 / 12)
    assert states[-1].limit is None
    after(60)
    runtime.advance(1000)
    assert states[-1].left == 0


def test_what_came_last_is_told_at_the_end(told):
    runtime, after, states = told
    with runtime:
        runtime.phase("read", 1000)
        after(0.01)
        runtime.advance(300, 3)
        assert [state.done for state in states] == [0], "not more than ten times a second"
    assert [state.done for state in states] == [0, 300]
    with contextlib.suppress(ValueError), Runtime(workers=1, progress=states.append) as runtime:
        runtime.phase("read", 1000)
        runtime.advance(1)
        raise ValueError("no")
    assert len(states) == 3


def test_a_phase_that_nobody_expected_and_no_total(told):
    runtime, after, states = told
    runtime.expect([Expected("read", 10)])
    runtime.phase("another", 100)
    after(1)
    runtime.advance(50)
    assert states[-1].left is None
    runtime.expect([])
    runtime.phase("pipe")
    after(1)
    runtime.advance(50)
    assert states[-1].left is None
    assert states[-1].rate == 50


def test_limits_of_the_machine_are_plausible():
    assert usable_cpus() >= 1
    assert available_memory() >= 64 << 20
    for wrong in ({"workers": 0}, {"memory": 0}):
        with pytest.raises(croupier.UsageError):
            Runtime(**wrong)
