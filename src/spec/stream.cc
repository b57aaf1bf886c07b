#include "kvarto/stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"

namespace kvarto {

RowBytes row_bytes(const Stream& stream) {
  RowBytes row;
  for (const Field& field : stream.fields) {
    const CodecBytes head = codec_bytes(field.codec, field.width);
    row.payload += head.payload * field.heads;
    row.scales += head.scales * field.heads;
  }
  row.padding = stream.row_pad_bytes;
  return row;
}

std::uint64_t head_bytes_in_row(const Stream& stream, const Field& field) {
  const CodecBytes head = codec_bytes(field.codec, field.width);
  const bool is_apart = stream.scales_in_footer && !codec_info(field.codec).has_scales_inside;
  return is_apart ? head.payload : head.total();
}

namespace {

std::uint64_t born_rows(const Stream& stream, std::uint64_t tokens) {
  return (tokens - std::min(tokens, stream.birth_delay_tokens)) / stream.tokens_per_row;
}

}  // namespace

std::uint64_t resident_rows(const Stream& stream, std::uint64_t tokens) {
  const std::uint64_t born = born_rows(stream, tokens);
  switch (stream.lifetime.kind) {
    case Lifetime::Kind::kNever:
      return born;
    case Lifetime::Kind::kWindow:
      return std::min(born, stream.lifetime.tokens);
    case Lifetime::Kind::kKept:
      return std::min(born, stream.lifetime.tokens);
    case Lifetime::Kind::kTtl:
      // A row covers its group until the last token of the group is `tokens` tokens old.
      return std::min(born, ceil_div(stream.lifetime.tokens, stream.tokens_per_row));
    case Lifetime::Kind::kChunk:
      return tokens == 0 ? 0 : (tokens - 1) % stream.lifetime.tokens + 1;
    case Lifetime::Kind::kStep:
      return 0;
    case Lifetime::Kind::kConstant:
      return tokens == 0 ? 0 : 1;
  }
  return 0;
}

std::uint64_t peak_rows(const Stream& stream, std::uint64_t tokens) {
  if (stream.lifetime.kind == Lifetime::Kind::kChunk) {
    return std::min(tokens, stream.lifetime.tokens);
  }
  // A stream of one step is complete at once: it covers the last, partial group too.
  if (stream.lifetime.kind == Lifetime::Kind::kStep) {
    return ceil_div(tokens, stream.tokens_per_row);
  }
  return resident_rows(stream, tokens);
}

std::uint64_t rows_read(const Stream& stream, std::uint64_t tokens) {
  const std::uint64_t resident = resident_rows(stream, tokens);
  switch (stream.access.kind) {
    case Access::Kind::kAll: {
      // Rows born but too new to be read; those that have died are no longer resident.
      const std::uint64_t born = born_rows(stream, tokens);
      const std::uint64_t old =
          born_rows(stream, tokens - std::min(tokens, stream.access.skip_tokens));
      const std::uint64_t skipped = born - old;
      return resident - std::min(resident, skipped);
    }
    case Access::Kind::kWindow: {
      const std::uint64_t first = resident - std::min(resident, stream.access.count);
      const std::uint64_t born = born_rows(stream, tokens);
      // Rows are numbered from the sequence's first: resident rows are the last ones born.
      return std::min(resident,
                      stream.access.count + (born - resident + first) % stream.access.align_rows);
    }
    case Access::Kind::kTopK: {
      const std::uint64_t count = stream.access.count;
      if (resident <= count) return resident;
      // Groups are chosen whole; the last one, not whole yet, is read beside them.
      const std::uint64_t rest = (born_rows(stream, tokens) - count) % stream.access.align_rows;
      return std::min(resident, count + rest);
    }
    case Access::Kind::kBlocks:
      return std::min(resident, stream.access.count);
    case Access::Kind::kRatio:
      // Whole blocks of `count` rows: max(ceil(ratio * blocks), min(2, blocks)) of them.
      {
        const std::uint64_t block = std::max<std::uint64_t>(stream.access.count, 1);
        const std::uint64_t blocks = ceil_div(resident, block);
        const auto wanted = static_cast<std::uint64_t>(
            stream.access.ratio * static_cast<double>(blocks) + 0.999999999);
        const std::uint64_t kept =
            std::min(blocks, std::max(wanted, std::min<std::uint64_t>(2, blocks)));
        return std::min(resident, kept * block);
      }
    case Access::Kind::kNone:
      return 0;
  }
  return 0;
}

std::string to_string(const Lifetime& lifetime) {
  switch (lifetime.kind) {
    case Lifetime::Kind::kNever:
      return "never";
    case Lifetime::Kind::kWindow:
      return fmt::format("window({})", lifetime.tokens);
    case Lifetime::Kind::kChunk:
      return fmt::format("chunk({})", lifetime.tokens);
    case Lifetime::Kind::kTtl:
      return fmt::format("ttl({})", lifetime.tokens);
    case Lifetime::Kind::kKept:
      return fmt::format("kept({})", lifetime.tokens);
    case Lifetime::Kind::kStep:
      return "step";
    case Lifetime::Kind::kConstant:
      return "constant";
  }
  return "";
}

std::string to_string(const Access& access) {
  switch (access.kind) {
    case Access::Kind::kAll:
      return "all";
    case Access::Kind::kWindow:
      return fmt::format("window({})", access.count);
    case Access::Kind::kTopK:
      return fmt::format("topk({})", access.count);
    case Access::Kind::kRatio:
      return fmt::format("ratio({})", access.ratio);
    case Access::Kind::kBlocks:
      return fmt::format("blocks({})", access.count);
    case Access::Kind::kNone:
      return "none";
  }
  return "";
}

std::string to_string(const Truncate& truncate) {
  switch (truncate.kind) {
    case Truncate::Kind::kAny:
      return "any";
    case Truncate::Kind::kResident:
      return "resident";
    case Truncate::Kind::kBoundary:
      return fmt::format("boundary({})", truncate.tokens);
    case Truncate::Kind::kSnapshot:
      return "snapshot";
  }
  return "";
}

}  // namespace kvarto
