#include "example_batch.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "example_part.h"
#include "threads.h"

namespace croupier {
namespace {

// Rows of all columns together, where the names come from the data: many records with a name of its own each would
// else take memory in proportion to their square.
constexpr std::uint64_t kRows = 1 << 24;

// Where parts of about as many bytes begin. The bounds may lie: then parts are odd, and the records are checked.
std::vector<std::size_t> cut(const Frames& frames, std::size_t parts) {
  std::vector<std::size_t> edges{0};
  const Numbers bounds = frames.bounds;
  const std::uint64_t first = bounds.front(), all = bounds.back() - first;
  for (std::size_t i = 1; i < parts; ++i) {
    const std::uint64_t target = first + all / parts * i;
    const auto at = std::lower_bound(bounds.begin(), bounds.end() - 1, target);
    edges.push_back(std::max(edges.back(), static_cast<std::size_t>(at - bounds.begin())));
  }
  edges.push_back(frames.count());
  return edges;
}

}  // namespace

ExampleColumns::ExampleColumns(const Frames& frames, bool framed, const Asked& asked, unsigned threads) {
  edges_ = cut(frames, parts_for(frames.buffer.size(), threads));
  const std::uint64_t most = asked.all ? kRows + frames.buffer.size() : ~std::uint64_t{0};
  for (std::size_t i = 0; i + 1 < edges_.size(); ++i)
    parts_.push_back(std::make_unique<ExamplePart>(asked, edges_[i + 1] - edges_[i], most));
  in_parallel(parts_.size(), [&](std::size_t i) {
    for (std::size_t record = edges_[i]; record < edges_[i + 1]; ++record)
      if (!parts_[i]->parse(framed ? frames.payload(record) : frames.at(record))) return;
  });
  find_flaw();
  if (flaw_.flaw == Flaw::kNone) join(asked);
  if (columns_.size() * (frames.count() + 1) > most) flaw_.flaw = Flaw::kMany;
}

ExampleColumns::~ExampleColumns() = default;

// The first record at fault, whatever the parts: a feature may hold another kind than in a part before.
void ExampleColumns::find_flaw() {
  std::map<std::string_view, Holds> known;
  for (std::size_t i = 0; i < parts_.size() && flaw_.flaw == Flaw::kNone; ++i) {
    const ExamplePart& part = *parts_[i];
    flaw_ = part.flaw();
    flaw_.record += edges_[i];
    for (const auto& column : part.columns()) {
      if (column->holds == Holds::kNothing) continue;
      const auto [at, fresh] = known.try_emplace(column->name, column->holds);
      if (fresh || at->second == column->holds) continue;
      const std::size_t record = edges_[i] + column->first;
      if (flaw_.flaw != Flaw::kNone &&
          (flaw_.record < record || (flaw_.record == record && flaw_.name <= column->name)))
        continue;
      flaw_ = {Flaw::kHolds, record, column->first_offset, column->name, at->second, column->holds};
    }
  }
}

void ExampleColumns::join(const Asked& asked) {
  std::map<std::string_view, Column> found;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    for (const auto& column : parts_[i]->columns()) {
      Column& whole = found[column->name];
      whole.parts.resize(parts_.size(), nullptr);
      whole.parts[i] = column.get();
    }
  }
  const auto keep = [&](std::string_view name) {
    Column& column = found[name];
    column.name = name;
    describe(column);
    columns_.push_back(std::move(column));
  };
  if (asked.all)
    for (const auto& [name, column] : found) keep(name);
  else
    for (const Asked::Feature& feature : asked.features) keep(feature.name);
}

void ExampleColumns::describe(Column& column) const {
  column.holds = Holds::kNothing;
  bool first = true;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const PartColumn* const part = column.parts[i];
    if (part && part->holds != Holds::kNothing) column.holds = part->holds;
    if (parts_[i]->records() == 0) continue;
    if (first && part) column.each = part->each;
    first = false;
    if (!part) {
      column.ragged = true;
      column.missing += parts_[i]->records();
      continue;
    }
    column.values += part->count();
    column.bytes += part->holds == Holds::kBytes ? part->values.size() : 0;
    column.missing += part->missing;
    column.ragged = column.ragged || part->ragged || part->each != column.each;
  }
}

void ExampleColumns::fill(std::size_t number, const Arrays& to) const {
  const Column& column = columns_[number];
  std::uint64_t values = 0, count = 0;  // before this part: bytes, and values
  if (to.rows) to.rows[0] = 0;
  if (to.items) to.items[0] = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const PartColumn* const part = column.parts[i];
    const std::size_t records = parts_[i]->records();
    if (to.rows) {
      std::uint64_t* const rows = to.rows + edges_[i] + 1;
      for (std::size_t k = 0; k < records; ++k)
        rows[k] = count + (!part ? 0 : part->ragged ? part->rows[k + 1] : part->each * (k + 1));
    }
    if (to.present) {
      if (part && part->missing)
        std::copy_n(part->present.begin(), records, to.present + edges_[i]);
      else
        std::fill_n(to.present + edges_[i], records, static_cast<std::uint8_t>(part != nullptr));
    }
    if (!part || part->count() == 0) continue;
    if (part->values.size()) std::memcpy(to.values + values, part->values.data(), part->values.size());
    if (to.items)
      for (std::size_t k = 0; k < part->items.size(); ++k) to.items[count + k + 1] = values + part->items.data()[k];
    values += part->values.size();
    count += part->count();
  }
}

}  // namespace croupier
