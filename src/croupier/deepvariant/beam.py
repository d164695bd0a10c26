"""Beam's own flags: what they would do there, and why nothing of it is needed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from croupier.errors import UsageError


class Option(NamedTuple):
    """A flag of Beam's."""

    name: str
    takes_value: bool
    meaning: str
    why: str
    """It has no effect."""


_HERE = "the records are shuffled on this machine"
_SETS = "a setting of Beam's {} runner, and no Beam runs"

# (meaning, why, those that take a value, switches), a Beam class of options each; the ones that the guides of
# DeepVariant use come first, with words of their own.
_GROUPS = (
    ("the Google Cloud project that pays for Dataflow", _HERE, "project", ""),
    ("what Dataflow calls the job", _HERE, "job_name", ""),
    ("where Dataflow runs", _HERE, "region zone worker_region worker_zone", ""),
    ("a bucket for the files that Dataflow starts from", _HERE, "staging_location", ""),
    ("a bucket for Dataflow's temporary files", "they go where --tmp_dir says", "temp_location", ""),
    (
        "whether this script is sent to Beam's workers",
        "there are none",
        "",
        "save_main_session no_save_main_session",
    ),
    (
        "what is installed on Beam's workers",
        "there are none",
        "requirements_file requirements_cache setup_file beam_plugin beam_plugins pickle_library "
        "sdk_location extra_package extra_packages file_to_stage files_to_stage "
        "prebuild_sdk_container_engine prebuild_sdk_container_base_image cloud_build_machine_type "
        "docker_registry_push_url gbek user_agent maven_repository_url",
        "requirements_cache_only_sources",
    ),
    (
        "how Beam's local runner spreads its work",
        "threads on all cores do it: see --workers",
        "direct_running_mode direct_runner_bundle_repeat direct_test_splits",
        "no_direct_runner_use_stacked_bundle direct_embed_docker_python",
    ),
    (
        "the machines that Dataflow starts",
        _HERE,
        "num_workers max_num_workers autoscaling_algorithm worker_machine_type machine_type disk_size_gb "
        "worker_disk_type disk_type disk_provisioned_iops disk_provisioned_throughput_mibps network "
        "subnetwork worker_harness_container_image sdk_container_image sdk_harness_container_image_overrides "
        "default_sdk_harness_log_level sdk_harness_log_level_overrides min_cpu_platform "
        "max_cache_memory_usage_mb element_processing_timeout_minutes number_of_worker_harness_threads",
        "use_public_ips no_use_public_ips",
    ),
    (
        _SETS.format("Dataflow"),
        _HERE,
        "dataflow_endpoint service_account_email template_location label labels transform_name_mapping "
        "dataflow_kms_key create_from_snapshot flexrs_goal dataflow_service_option dataflow_service_options "
        "impersonate_service_account gcp_oauth_scope gcp_oauth_scopes gcs_custom_audit_entry "
        "gcs_custom_audit_entries dataflow_job_file pubsub_root_url",
        "no_auth update enable_streaming_engine enable_hot_key_logging enable_artifact_caching "
        "enable_bucket_read_metric_counter enable_bucket_write_metric_counter no_gcsio_throttling_counter "
        "enable_gcsio_blob_generation",
    ),
    (
        _SETS.format("Spark"),
        _HERE,
        "spark_master_url spark_job_server_jar spark_rest_url spark_version",
        "spark_submit_uber_jar",
    ),
    (
        _SETS.format("Flink"),
        _HERE,
        "flink_master flink_version flink_job_server_jar parallelism max_parallelism",
        "flink_submit_uber_jar",
    ),
    (
        _SETS.format("portable"),
        _HERE,
        "job_endpoint artifact_endpoint job_server_timeout environment_type environment_config "
        "environment_option environment_options sdk_worker_parallelism environment_cache_millis "
        "output_executable_path artifacts_dir job_port artifact_port expansion_port job_server_java_launcher "
        "job_server_jvm_properties job_server_jvm_property jar_cache_dir bootstrap_servers application_id "
        "kafka_streams_job_server_jar prism_location prism_beam_version_override prism_log_level "
        "prism_log_kind beam_services",
        "use_transform_service",
    ),
    (
        "how Beam reaches files that are not local",
        "local files are read and written",
        "s3_access_key_id s3_secret_access_key s3_session_token s3_endpoint_url s3_region_name "
        "s3_api_version s3_verify hdfs_host hdfs_port hdfs_user azure_connection_string "
        "blob_service_endpoint azure_managed_identity_client_id",
        "s3_disable_ssl hdfs_full_urls",
    ),
    (
        "how Beam checks, measures or tests a pipeline",
        "there is no pipeline",
        "experiment experiments type_check_strictness type_check_additional profile_location "
        "profile_sample_rate profiler_agent profiler_extra_arg profiler_extra_args profiler_extra_env_var "
        "profiler_extra_env_vars profile_temp_location profile_upload_interval_sec profiler_stop_after_sec "
        "profile_postprocess_interval_sec on_success_matcher wait_until_finish_duration resource_hint "
        "resource_hints update_compatibility_version",
        "no_pipeline_type_check disable_beartype exclude_infer_dataclass_field_type runtime_type_check "
        "performance_runtime_type_check allow_non_deterministic_key_coders allow_unsafe_triggers "
        "force_cloudpickle_deterministic_coders profile_cpu profile_memory profiler_stop_after_crash "
        "streaming auto_unique_labels no_wait_until_finish",
    ),
)  # fmt: skip

OPTIONS = {
    name: Option(name, takes_value, meaning, why)
    for meaning, why, valued, switches in _GROUPS
    for names, takes_value in ((valued, True), (switches, False))
    for name in names.split()
}
"""All but --runner, and those that mean something here: --direct_num_workers and --dry_run."""

_LOCAL = {"direct", "bundlebaseddirect", "switchingdirect", "fnapi", "prism", "interactive"}
_SECRET = ("key", "secret", "token", "password", "connection_string")


def check_runner(runner: str | None, say: Callable[[str], None]) -> None:
    """Beam's local runners are what happens here; those of other machines are refused."""
    if runner is None:
        return
    if runner.rpartition(".")[2].lower().removesuffix("runner") not in _LOCAL:
        raise UsageError(
            f"--runner={runner}: the shuffle does not run on Beam's runners yet, but on this machine: leave "
            "--runner away (or say DirectRunner), with local paths; `gsutil -m cp` gets files from a bucket"
        )
    say(f"--runner={runner}: Beam's local runner; no effect: {_HERE}, without Beam")


def explain(given: Mapping[str, Any]) -> Iterator[str]:
    """A line for each flag of Beam's that was given: `given` are names and values (True: a switch)."""
    for name, value in given.items():
        option = OPTIONS[name]
        for one in value if isinstance(value, list | tuple) else [value]:
            shown = "..." if any(word in name for word in _SECRET) else one
            flag = f"--{name}={shown}" if option.takes_value else f"--{name}"
            yield f"{flag}: {option.meaning}; no effect: {option.why}"
