// Rows of a profile's cache against what was written.

#include <algorithm>
#include <cmath>

#include "kernels/dispatch.h"
#include "profile/profile_loop.h"

namespace kvarto {
namespace {

constexpr std::uint64_t kNumRowsReadBack = 512;

// What a stream keeps of one row.
std::vector<float> stored_row(const Stream& stream, std::span<const float> row) {
  const KernelTable& kernels = kernel_table(Isa::kScalar);
  std::vector<float> stored(row.size());
  std::size_t i = 0;
  for (const Field& field : stream.fields) {
    const auto codec = static_cast<std::size_t>(field.codec);
    std::vector<std::byte> image(codec_bytes(field.codec, field.width).total());
    for (std::uint32_t head = 0; head < field.heads; ++head, i += field.width) {
      kernels.encode[codec](&row[i], image.data(), field.width);
      kernels.decode[codec](image.data(), &stored[i], field.width);
    }
  }
  return stored;
}

void compare_row(std::span<const float> read, std::span<const float> written, const Stream& stream,
                 ReadBack& result) {
  const std::vector<float> stored = stored_row(stream, written);
  double moved = 0;
  double largest = 0;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (read[i] != stored[i]) ++result.num_differing;
    moved = std::max(moved, std::fabs(double{stored[i]} - double{written[i]}));
    largest = std::max(largest, std::fabs(double{written[i]}));
  }
  result.num_elements += read.size();
  if (largest > 0) result.rounding = std::max(result.rounding, moved / largest);
}

}  // namespace

Result<ReadBack> ProfileLoop::read_back() const {
  ReadBack result;
  const std::uint64_t first = first_visible();
  const std::uint64_t stride = (num_tokens_ - first) / kNumRowsReadBack + 1;
  for (const Stream& stream : group().streams) {
    const bool is_value = stream.name == "v";
    const bool is_index = stream.purpose == Purpose::kIndexer;
    const RowTable& table = is_index ? index_tables_[0] : tables_[is_value ? 1 : 0];
    const StreamId id = is_index   ? *layers_.front().index
                        : is_value ? layers_.front().v
                                   : layers_.front().k;
    std::vector<float> row(table.rows(0, 1).size());
    for (const SequenceId sequence : sequences_) {
      for (std::uint64_t token = num_tokens_; token > first;
           token -= std::min(stride, token - first)) {
        KVARTO_CHECK_OK(cache_.read(sequence, id, token - 1, row));
        compare_row(row, table.rows(token - 1, 1), stream, result);
      }
    }
  }
  return result;
}

}  // namespace kvarto
