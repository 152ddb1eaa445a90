// native/onednn/maxima.cpp: repair of NaN and infinities that oneDNN's kernels with a maximum lose.
#include "maxima.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "floats.h"
#include "places.h"

namespace vtensor::onednn {

namespace {

// Finds the index of an element in each dim from its place in memory.
class Finder {
public:
    explicit Finder(const Desc &desc) : desc_(desc) {
        for (const auto &[size, dim] : desc.blocks()) inside_ *= size;
        for (std::size_t d = 0; d < desc.dims().size(); ++d) {
            dnnl_dim_t size = 1;
            for (const auto &[block, dim] : desc.blocks())
                if (dim == static_cast<dnnl_dim_t>(d)) size *= block;
            const dnnl_dim_t count = (desc.dims()[d] + size - 1) / size;
            if (count > 1) outer_.push_back({desc.strides()[d], count, d});
        }
        std::ranges::sort(outer_, std::ranges::greater{}, &Outer::stride);
        dnnl_dim_t reach = inside_;
        for (auto one = outer_.rbegin(); one != outer_.rend(); ++one) {
            unique_ = unique_ && one->stride >= reach;
            reach += (one->count - 1) * one->stride;
        }
    }

    // Returns false if several elements may share a place: a dim is repeated, or rows overlap.
    bool unique() const { return unique_; }

    // Finds the index of the element at a place; returns false if there is none, as in pads and
    // between pitched rows. Requires unique().
    bool find(dnnl_dim_t place, Ints &index) const {
        index.assign(desc_.dims().size(), 0);
        place -= desc_.offset();
        if (place < 0) return false;
        for (const Outer &one : outer_) {
            index[one.dim] = place / one.stride;
            place %= one.stride;
            if (index[one.dim] >= one.count) return false;
        }
        if (place >= inside_) return false;
        dnnl_dim_t inside = inside_;
        for (const auto &[size, dim] : desc_.blocks()) {
            inside /= size;
            dnnl_dim_t &along = index[static_cast<std::size_t>(dim)];
            along = along * size + place / inside;
            place %= inside;
        }
        for (std::size_t d = 0; d < index.size(); ++d)
            if (index[d] >= desc_.dims()[d]) return false;
        return true;
    }

private:
    struct Outer {
        dnnl_dim_t stride, count;
        std::size_t dim;
    };
    const Desc &desc_;
    std::vector<Outer> outer_;
    dnnl_dim_t inside_ = 1;
    bool unique_ = true;
};

// Returns, for each position along a spatial dim of dst, the places in src that its window sees.
std::vector<Ints> windows(const Window &window, std::size_t d, const Ints &along, dnnl_dim_t count) {
    std::vector<Ints> seen(static_cast<std::size_t>(count));
    for (dnnl_dim_t i = 0; i < count; ++i) {
        for (dnnl_dim_t k = 0; k < window.kernel[d]; ++k) {
            const dnnl_dim_t at =
                i * window.strides[d] - window.pads_begin[d] + k * window.dilations[d];
            if (at >= 0 && at < static_cast<dnnl_dim_t>(along.size()))
                seen[static_cast<std::size_t>(i)].push_back(along[static_cast<std::size_t>(at)]);
        }
    }
    return seen;
}

template <typename F>
typename F::Type largest(const typename F::Type *src, const std::array<const Ints *, 3> &taps) {
    auto best = F::kLowest;
    for (const dnnl_dim_t d : *taps[0]) {
        for (const dnnl_dim_t h : *taps[1]) {
            for (const dnnl_dim_t w : *taps[2]) {
                const auto value = src[d + h + w];
                if (F::is_nan(value)) return value;
                if (F::order(value) > F::order(best)) best = value;
            }
        }
    }
    return best;
}

// Returns, for each position along a spatial dim of src, the windows that see it.
std::vector<Ints> seers(const Window &window, std::size_t d, dnnl_dim_t size, dnnl_dim_t count) {
    std::vector<Ints> found(static_cast<std::size_t>(size));
    for (dnnl_dim_t i = 0; i < count; ++i) {
        for (dnnl_dim_t k = 0; k < window.kernel[d]; ++k) {
            const dnnl_dim_t at =
                i * window.strides[d] - window.pads_begin[d] + k * window.dilations[d];
            if (at >= 0 && at < size) found[static_cast<std::size_t>(at)].push_back(i);
        }
    }
    return found;
}

// Recomputes the windows that see given elements of src, each window once.
template <typename F>
class Pool {
public:
    Pool(const Window &window, const Desc &src_desc, const Desc &dst_desc,
         const typename F::Type *src, typename F::Type *dst)
        : first_(3 - window.kernel.size()), finder_(src_desc), src_(src), dst_(dst) {
        for (std::size_t d = 0; d < window.kernel.size(); ++d) {
            const int dim = static_cast<int>(d) + 2;
            const dnnl_dim_t size = src_desc.dims()[d + 2], count = dst_desc.dims()[d + 2];
            made_[first_ + d] = places(dst_desc, dim);
            seen_[first_ + d] = windows(window, d, places(src_desc, dim), count);
            by_[first_ + d] = seers(window, d, size, count);
        }
        for (const int dim : {0, 1}) {
            from_[dim] = places(src_desc, dim);
            to_[dim] = places(dst_desc, dim);
        }
        src_ += src_desc.offset();
        dst_ += dst_desc.offset();
        done_.resize(dst_desc.bytes() / sizeof(*dst));
    }

    bool unique() const { return finder_.unique(); }

    // Recomputes around the element at a place in memory; `index` is the calling thread's buffer.
    void around_place(dnnl_dim_t place, Ints &index) {
        if (finder_.find(place, index)) around(index);
    }

    // Recomputes around each NaN and -inf of one channel of an image.
    void around_all(const Desc &src_desc, std::size_t n, std::size_t c) {
        const auto *image = src_ + from_[0][n] + from_[1][c];
        Ints index(src_desc.dims().size());
        index[0] = static_cast<dnnl_dim_t>(n);
        index[1] = static_cast<dnnl_dim_t>(c);
        std::array<Ints, 3> along{{{0}, {0}, {0}}};
        for (std::size_t d = first_; d < 3; ++d)
            along[d] = places(src_desc, static_cast<int>(d - first_) + 2);
        std::array<std::size_t, 3> at{};
        for (at[0] = 0; at[0] < along[0].size(); ++at[0])
            for (at[1] = 0; at[1] < along[1].size(); ++at[1])
                for (at[2] = 0; at[2] < along[2].size(); ++at[2]) {
                    const auto place = along[0][at[0]] + along[1][at[1]] + along[2][at[2]];
                    if (!is_odd<F>(image[place])) continue;
                    for (std::size_t d = first_; d < 3; ++d)
                        index[d - first_ + 2] = static_cast<dnnl_dim_t>(at[d]);
                    around(index);
                }
    }

private:
    void around(const Ints &index) {
        std::array<std::size_t, 3> at{};
        for (std::size_t d = first_; d < 3; ++d)
            at[d] = static_cast<std::size_t>(index[d - first_ + 2]);
        const auto n = static_cast<std::size_t>(index[0]), c = static_cast<std::size_t>(index[1]);
        const auto *image = src_ + from_[0][n] + from_[1][c];
        const dnnl_dim_t result = to_[0][n] + to_[1][c];
        for (const dnnl_dim_t i : by_[0][at[0]])
            for (const dnnl_dim_t j : by_[1][at[1]])
                for (const dnnl_dim_t k : by_[2][at[2]]) once(image, result, i, j, k);
    }

    void once(const typename F::Type *image, dnnl_dim_t result, dnnl_dim_t i, dnnl_dim_t j,
              dnnl_dim_t k) {
        const auto d = static_cast<std::size_t>(i), h = static_cast<std::size_t>(j),
                   w = static_cast<std::size_t>(k);
        result += made_[0][d] + made_[1][h] + made_[2][w];
        std::atomic_ref<std::uint8_t> mark(done_[static_cast<std::size_t>(result)]);
        if (mark.exchange(1, std::memory_order_relaxed) == 0)
            dst_[result] = largest<F>(image, {&seen_[0][d], &seen_[1][h], &seen_[2][w]});
    }

    std::size_t first_;  // a missing spatial dim has one position
    Finder finder_;
    const typename F::Type *src_;
    typename F::Type *dst_;
    std::array<std::vector<Ints>, 3> seen_{{{{0}}, {{0}}, {{0}}}}, by_{{{{0}}, {{0}}, {{0}}}};
    std::array<Ints, 3> made_{{{0}, {0}, {0}}};
    std::array<Ints, 2> from_, to_;
    std::vector<std::uint8_t> done_;
};

template <typename F>
void restore(const Window &window, const Desc &src_desc, const Desc &dst_desc, const void *src,
             void *dst) {
    using Bits = typename F::Type;
    const auto *values = static_cast<const Bits *>(src);
    const auto count = static_cast<std::int64_t>(src_desc.bytes() / sizeof(Bits));
    const std::vector<std::int64_t> blocks = odd_blocks<F>(values, count);
    if (blocks.empty()) return;
    Pool<F> pool(window, src_desc, dst_desc, values, static_cast<Bits *>(dst));
    if (!pool.unique()) {
        const auto images = static_cast<std::size_t>(src_desc.dims()[0]);
        const auto channels = static_cast<std::size_t>(src_desc.dims()[1]);
#pragma omp parallel for collapse(2)
        for (std::size_t n = 0; n < images; ++n)
            for (std::size_t c = 0; c < channels; ++c) pool.around_all(src_desc, n, c);
        return;
    }
#pragma omp parallel
    {
        Ints index(src_desc.dims().size());
#pragma omp for schedule(dynamic)
        for (std::size_t b = 0; b < blocks.size(); ++b) {
            const std::int64_t end = std::min(count, (blocks[b] + 1) * kBlock);
            for (std::int64_t i = blocks[b] * kBlock; i < end; ++i)
                if (is_odd<F>(values[i])) pool.around_place(i, index);
        }
    }
}

// The places along a dim, by arithmetic if the dim is not blocked.
class Along {
public:
    Along(const Desc &desc, int dim)
        : desc_(desc), dim_(dim), stride_(desc.strides()[static_cast<std::size_t>(dim)]),
          blocked_(std::ranges::any_of(desc.blocks(),
                                       [dim](const auto &block) { return block.second == dim; })) {}

    dnnl_dim_t operator[](dnnl_dim_t index) const {
        return blocked_ ? place(desc_, dim_, index) : index * stride_;
    }

private:
    const Desc &desc_;
    int dim_;
    dnnl_dim_t stride_;
    bool blocked_;
};

// Below this number of rows one thread is faster than a team.
constexpr dnnl_dim_t kRowsWorthATeam = 1024;

template <typename F>
void spread(int axis, bool logarithm, const Desc &desc, typename F::Type *dst) {
    using Bits = typename F::Type;
    const Ints &dims = desc.dims();
    const Bits nothing = logarithm ? F::kLowest : Bits{0};
    // The longest of the other dims is the inner loop; all others form one outer loop.
    int inner = -1;
    dnnl_dim_t outer_count = 1;
    for (int d = 0; d < desc.rank(); ++d) {
        if (d == axis) continue;
        const auto at = static_cast<std::size_t>(d);
        outer_count *= dims[at];
        if (inner < 0 || dims[at] > dims[static_cast<std::size_t>(inner)]) inner = d;
    }
    const dnnl_dim_t count = inner < 0 ? 1 : dims[static_cast<std::size_t>(inner)];
    const dnnl_dim_t length = dims[static_cast<std::size_t>(axis)];
    outer_count /= count;
    const Along row(desc, axis), next(desc, std::max(inner, 0));
    const auto complete = [&](Bits *first) {
        dnnl_dim_t i = 0;
        while (i < length && first[row[i]] == nothing) ++i;
        if (i == length || !F::is_nan(first[row[i]])) return;
        for (dnnl_dim_t j = 0; j < length; ++j) first[row[j]] = F::kNaN;
    };
    std::vector<Bits *> starts;
    for (dnnl_dim_t r = 0; r < outer_count; ++r) {
        Bits *start = dst + desc.offset();
        dnnl_dim_t rest = r;
        for (int d = desc.rank() - 1; d >= 0; --d) {
            if (d == axis || d == inner) continue;
            const dnnl_dim_t size = dims[static_cast<std::size_t>(d)];
            start += place(desc, d, rest % size);
            rest /= size;
        }
        starts.push_back(start);
    }
#pragma omp parallel for collapse(2) if (outer_count * count >= kRowsWorthATeam)
    for (dnnl_dim_t r = 0; r < outer_count; ++r)
        for (dnnl_dim_t j = 0; j < count; ++j)
            complete(starts[static_cast<std::size_t>(r)] + next[j]);
}

}  // namespace

void spread_nan(int axis, bool logarithm, const Desc &dst_desc, void *dst) {
    if (dst_desc.type() == dnnl_f32)
        spread<F32>(axis, logarithm, dst_desc, static_cast<std::uint32_t *>(dst));
    if (dst_desc.type() == dnnl_bf16)
        spread<Bf16>(axis, logarithm, dst_desc, static_cast<std::uint16_t *>(dst));
    if (dst_desc.type() == dnnl_f16)
        spread<F16>(axis, logarithm, dst_desc, static_cast<std::uint16_t *>(dst));
}

void restore_maxima(const Window &window, const Desc &src_desc, const Desc &dst_desc,
                    const void *src, void *dst) {
    if (src_desc.type() != dst_desc.type()) return;
    if (src_desc.type() == dnnl_f32)
        restore<F32>(window, src_desc, dst_desc, src, dst);
    if (src_desc.type() == dnnl_bf16)
        restore<Bf16>(window, src_desc, dst_desc, src, dst);
    if (src_desc.type() == dnnl_f16)
        restore<F16>(window, src_desc, dst_desc, src, dst);
}

}  // namespace vtensor::onednn
