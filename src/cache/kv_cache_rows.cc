// Rows and views: where the bytes of a stream lie, writing and reading them.

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/checked.h"
#include "cache/kv_cache_impl.h"

namespace kvarto {
namespace {

// Layers that borrow from layers that borrow: no model has more than one step.
constexpr int kMaxBorrowSteps = 8;

const LayerGroup* group_of_layer(const ModelSpec& model, std::uint32_t layer) {
  for (const LayerGroup& group : model.groups) {
    if (std::binary_search(group.layers.begin(), group.layers.end(), layer)) return &group;
  }
  return nullptr;
}

StreamView view_of(const TrackStore& store, const SliceArray& slice, const FieldShape& field) {
  return {.base = store.storage.begin() + slice.offset_bytes + field.offset_bytes,
          .block_stride_bytes = slice.slice_bytes,
          .layout = field.layout,
          .codec = field.codec,
          .heads = field.heads,
          .width = field.width};
}

Status check_coded(const SliceShape& shape, const std::string& name, const KernelTable& kernels) {
  if (shape.is_coded_by(kernels)) return {};
  std::string fields;
  for (const FieldShape& field : shape.fields) {
    fields += fmt::format("{}{} x {}", fields.empty() ? "" : " + ", field.width,
                          codec_info(field.codec).name);
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("stream {}: heads of {}, expected codecs that can be written, with "
                          "scales of at most {} elements",
                          name, fields, kMaxCodedWidth));
}

}  // namespace

Result<StreamId> KvCache::find_stream(std::uint32_t layer, std::string_view name) const {
  const Impl& impl = *impl_;
  std::uint32_t owner = layer;
  for (int step = 0; step < kMaxBorrowSteps; ++step) {
    const LayerGroup* group = group_of_layer(impl.model, owner);
    if (group == nullptr) break;
    const auto stream = std::find_if(group->streams.begin(), group->streams.end(),
                                     [&](const Stream& each) { return each.name == name; });
    if (stream == group->streams.end()) break;
    if (stream->owner_layer) {
      owner = *stream->owner_layer;
      continue;
    }
    for (std::size_t i = 0; i < impl.slices.size(); ++i) {
      const SliceArray& slice = impl.slices[i];
      if (slice.layer == owner && &impl.model.groups[slice.group] == group &&
          &group->streams[slice.stream] == &*stream) {
        return StreamId{static_cast<std::uint32_t>(i)};
      }
    }
    break;
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("layer {} has no cached stream \"{}\", expected one that inspect lists",
                          layer, name));
}

Result<KvCache::Impl::RowPlace> KvCache::Impl::place_of(const SliceArray& slice, std::uint32_t slot,
                                                        std::uint64_t row) const {
  const TrackStore& store = stores[slice.track];
  const TableRange& range = sequences[slot].ranges[slice.track];
  const std::uint64_t rows = num_rows(store.track, sequences[slot].num_tokens, range.removed_rows);
  const std::uint64_t per_block = store.track.rows_per_block;
  const std::uint64_t logical = row / per_block;
  if (row >= rows || logical < range.first_block ||
      logical - range.first_block >= range.num_blocks) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream {}: row {}, expected a row in [{}, {}), which are held",
                            model.groups[slice.group].streams[slice.stream].name, row,
                            range.num_blocks == 0 ? rows : range.first_block * per_block, rows));
  }
  const std::uint64_t first = row % per_block;
  return RowPlace{
      .block = table(slice.track, slot)[logical - range.first_block],
      .rows = {first, std::min(per_block - first, rows - row)},
  };
}

Status KvCache::write(SequenceId sequence, StreamId stream, std::uint64_t first_row,
                      const RowSource& source) {
  Impl& impl = *impl_;
  KVARTO_TRY(const std::uint32_t slot, impl.slot_of(sequence));
  KVARTO_TRY(const SliceArray* slice, impl.slice_of(stream));
  const std::string& name = impl.model.groups[slice->group].streams[slice->stream].name;
  if (!is_plain(source.codec)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("stream {}: writing from {}, expected f32, f16 or bf16", name,
                            codec_info(source.codec).name));
  }
  KVARTO_CHECK_OK(check_coded(slice->shape, name, *impl.kernels));
  const std::uint64_t row_bytes =
      slice->shape.row_elements() * codec_info(source.codec).element_bits / 8;
  if (source.bytes.size() % row_bytes != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream {}: {} bytes of rows, expected a multiple of {}", name,
                            source.bytes.size(), row_bytes));
  }
  const std::uint64_t count = source.bytes.size() / row_bytes;
  if (count == 0) return {};
  // All rows are looked at before any is written.
  for (std::uint64_t done = 0; done < count;) {
    if (first_row + done < first_row) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("stream {}: row {} and {} more overflow 64 bits", name, first_row, count));
    }
    KVARTO_TRY(const Impl::RowPlace place, impl.place_of(*slice, slot, first_row + done));
    if (impl.is_shared(impl.stores[slice->track], place.block)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("stream {}: row {} lies in a block that another sequence or a "
                              "snapshot shares, expected an append before",
                              name, first_row + done));
    }
    done += place.rows.count;
  }
  const std::byte* from = source.bytes.data();
  for (std::uint64_t done = 0; done < count;) {
    Impl::RowPlace place = *impl.place_of(*slice, slot, first_row + done);
    place.rows.count = std::min(place.rows.count, count - done);
    write_rows(slice->shape, impl.slice_begin(*slice, place.block), place.rows,
               {from, source.codec}, *impl.kernels);
    from += place.rows.count * row_bytes;
    done += place.rows.count;
  }
  if (ElementSquares& squares = impl.squares[static_cast<std::uint32_t>(stream)];
      squares.is_kept()) {
    squares.add({source.bytes.data(), element_of(source.codec), count}, *impl.kernels);
  }
  return {};
}

Status KvCache::read(SequenceId sequence, StreamId stream, std::uint64_t first_row,
                     std::span<float> out) const {
  const Impl& impl = *impl_;
  KVARTO_TRY(const std::uint32_t slot, impl.slot_of(sequence));
  KVARTO_TRY(const SliceArray* slice, impl.slice_of(stream));
  const std::string& name = impl.model.groups[slice->group].streams[slice->stream].name;
  KVARTO_CHECK_OK(check_coded(slice->shape, name, *impl.kernels));
  const std::uint64_t elements = slice->shape.row_elements();
  if (out.size() % elements != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream {}: {} elements, expected a multiple of {}", name, out.size(),
                            elements));
  }
  const std::uint64_t count = out.size() / elements;
  const bool is_zero_state = impl.stores[slice->track].is_constant() &&
                             impl.sequences[slot].ranges[slice->track].num_blocks == 0;
  if (is_zero_state && first_row == 0 && count == 1) {
    std::fill(out.begin(), out.end(), 0.0f);
    return {};
  }
  float* to = out.data();
  for (std::uint64_t done = 0; done < count;) {
    KVARTO_TRY(Impl::RowPlace place, impl.place_of(*slice, slot, first_row + done));
    place.rows.count = std::min(place.rows.count, count - done);
    read_rows(slice->shape, {impl.slice_begin(*slice, place.block), place.rows}, to, *impl.kernels);
    to += place.rows.count * elements;
    done += place.rows.count;
  }
  return {};
}

Result<bool> KvCache::is_writable(SequenceId sequence, StreamId stream, std::uint64_t row) const {
  const Impl& impl = *impl_;
  KVARTO_TRY(const std::uint32_t slot, impl.slot_of(sequence));
  KVARTO_TRY(const SliceArray* slice, impl.slice_of(stream));
  KVARTO_TRY(const Impl::RowPlace place, impl.place_of(*slice, slot, row));
  return !impl.is_shared(impl.stores[slice->track], place.block);
}

Result<StreamView> KvCache::field_view(StreamId stream, std::uint32_t field) const {
  KVARTO_TRY(const SliceArray* slice, impl_->slice_of(stream));
  const Stream& whole = impl_->model.groups[slice->group].streams[slice->stream];
  if (field >= whole.fields.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream {}: field {}, expected one below {}", whole.name, field,
                            whole.fields.size()));
  }
  const TrackStore& store = impl_->stores[slice->track];
  if (slice->shape.fields.size() == whole.fields.size()) {
    return view_of(store, *slice, slice->shape.fields[field]);
  }
  // Fields that are read as one: elements without scales, one head each.
  StreamView view = view_of(store, *slice, slice->shape.fields[0]);
  for (std::uint32_t before = 0; before < field; ++before) {
    view.base += std::uint64_t{whole.fields[before].width} * slice->shape.fields[0].unit_bytes;
  }
  view.width = whole.fields[field].width;
  return view;
}

namespace {

// K or V of one row: its first elements, in at most two codecs.
struct RowPart {
  StreamView head;
  StreamView tail;
};

// The first `width` elements of each head, which must end where a field does unless all fields are
// read as one.
std::optional<RowPart> first_elements(const TrackStore& store, const SliceArray& slice,
                                      std::uint32_t width) {
  const std::vector<FieldShape>& fields = slice.shape.fields;
  RowPart part{.head = view_of(store, slice, fields[0]), .tail = {}};
  if (fields.size() == 1) {
    const bool can_be_cut = fields[0].heads == 1 && is_plain(fields[0].codec) &&
                            fields[0].layout.order != RowOrder::kHeadTiles;
    if (width < part.head.width && !can_be_cut) return std::nullopt;
    part.head.width = std::min(width, part.head.width);
    return part;
  }
  if (fields.size() != 2 || fields[0].heads != 1 || fields[1].heads != 1) return std::nullopt;
  if (fields[0].scale_bytes != 0 || fields[1].scale_bytes != 0) return std::nullopt;
  if (width == fields[0].width) return part;
  if (width != fields[0].width + fields[1].width) return std::nullopt;
  part.tail = view_of(store, slice, fields[1]);
  return part;
}

}  // namespace

Result<CacheView> KvCache::Impl::row_view(StreamId stream) const {
  KVARTO_TRY(const SliceArray* slice, slice_of(stream));
  const LayerGroup& group = model.groups[slice->group];
  const auto elements = static_cast<std::uint32_t>(slice->shape.row_elements());
  const std::uint32_t width = elements / slice->shape.fields[0].heads;
  const bool has_own_width = group.query.v_dim != 0 && group.query.v_dim < width;
  const TrackStore& store = stores[slice->track];
  const auto k = first_elements(store, *slice, width);
  const auto v = first_elements(store, *slice, has_own_width ? group.query.v_dim : width);
  if (!k.has_value() || !v.has_value()) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("stream {}: rows whose fields do not serve as K and, their first {} "
                    "elements, as V",
                    group.streams[slice->stream].name, has_own_width ? group.query.v_dim : width));
  }
  CacheView view{.k = k->head, .v = v->head, .k_tail = k->tail, .v_tail = v->tail};
  view.k.squares = squares[static_cast<std::uint32_t>(stream)].view();
  view.v.squares = view.k.squares;
  return view;
}

Result<StreamView> KvCache::stream_view(StreamId stream) const {
  KVARTO_TRY(const SliceArray* slice, impl_->slice_of(stream));
  if (slice->shape.fields.size() != 1) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("stream {}: a row of {} separate fields, expected field_view of one",
                            impl_->model.groups[slice->group].streams[slice->stream].name,
                            slice->shape.fields.size()));
  }
  StreamView view = view_of(impl_->stores[slice->track], *slice, slice->shape.fields[0]);
  view.squares = impl_->squares[static_cast<std::uint32_t>(stream)].view();
  return view;
}

Result<SequenceView> KvCache::sequence_view(SequenceId sequence, StreamId stream) const {
  const Impl& impl = *impl_;
  KVARTO_TRY(const std::uint32_t slot, impl.slot_of(sequence));
  KVARTO_TRY(const SliceArray* slice, impl.slice_of(stream));
  const TableRange& range = impl.sequences[slot].ranges[slice->track];
  const Track& track = impl.stores[slice->track].track;
  return SequenceView{
      .block_table = impl.table(slice->track, slot).first(range.num_blocks),
      .first_block = range.first_block,
      .num_tokens = num_rows(track, impl.sequences[slot].num_tokens, range.removed_rows)};
}

Result<LayerView> KvCache::view(StreamId k, StreamId v,
                                std::span<const SequenceId> sequences) const {
  const Impl& impl = *impl_;
  KVARTO_TRY(const SliceArray* k_slice, impl.slice_of(k));
  KVARTO_TRY(const SliceArray* v_slice, impl.slice_of(v));
  if (k_slice->track != v_slice->track) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("view: streams of tracks {} and {}, expected one track for K and V",
                            k_slice->track, v_slice->track));
  }
  const std::uint64_t rows_per_block = impl.stores[k_slice->track].track.rows_per_block;
  CacheView cache;
  const Stream& k_stream = impl.model.groups[k_slice->group].streams[k_slice->stream];
  if (k == v && k_stream.fields.size() > 1) {
    KVARTO_TRY(cache, impl.row_view(k));
  } else {
    KVARTO_TRY(cache.k, stream_view(k));
    KVARTO_TRY(cache.v, stream_view(v));
  }
  cache.rows_per_block = static_cast<std::uint32_t>(rows_per_block);
  std::vector<SequenceView> views;
  views.reserve(sequences.size());
  for (const SequenceId sequence : sequences) {
    KVARTO_TRY(const SequenceView view, sequence_view(sequence, k));
    views.push_back(view);
  }
  return LayerView(cache, std::move(views));
}

Result<std::span<std::byte>> KvCache::step_rows(SequenceId sequence, std::uint32_t layer,
                                                std::string_view name) {
  Impl& impl = *impl_;
  KVARTO_TRY(const std::uint32_t slot, impl.slot_of(sequence));
  for (StepStore& store : impl.step_stores) {
    const LayerGroup& group = impl.model.groups[store.group];
    const auto found = std::lower_bound(group.layers.begin(), group.layers.end(), layer);
    if (found == group.layers.end() || *found != layer) continue;
    if (group.streams[store.stream].name != name) continue;
    const auto index = static_cast<std::uint64_t>(found - group.layers.begin());
    return std::span(store.bytes)
        .subspan((index * impl.sequences.size() + slot) * store.bytes_per_sequence,
                 store.bytes_per_sequence);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("layer {} has no stream \"{}\" of one step", layer, name));
}

std::byte* KvCache::writable_base(StreamId stream) {
  const Result<const SliceArray*> slice = impl_->slice_of(stream);
  if (!slice) return nullptr;
  impl_->squares[static_cast<std::uint32_t>(stream)].forget();
  return impl_->stores[(*slice)->track].storage.begin() + (*slice)->offset_bytes;
}

}  // namespace kvarto
