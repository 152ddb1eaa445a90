// native/eigen/bilinear.cpp: an image at another size, linearly along two axes at once.
//
// The sum of four products is computed in one order, without contraction, so that all levels of
// instructions give the bits of ONNX Runtime.
#include "bilinear.h"

#include <algorithm>
#include <array>

#include "check.h"
#include "elements.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

// From how many neighbouring elements on, elements are read in place.
constexpr Index kWide = 16;

// A weighted element; one with weight 0 does not count, even if it is NaN.
inline float term(float weight, float value) { return weight != 0 ? weight * value : 0.0F; }

template <class Element>
class Bilinear final : public Step {
public:
    Bilinear(Index outer, const Between &rows, const Between &columns, Index inner)
        : Step("bilinear"), outer_(outer), inner_(inner), rows_(rows), columns_(columns) {
        check(rows);
        check(columns);
        add_slot("src", VTENSOR_READ, product({outer, rows.from, columns.from, inner}),
                 sizeof(Element));
        width_ = times(size(columns), inner);
        add_slot("dst", VTENSOR_WRITE, product({outer, size(rows), width_}), sizeof(Element));
        if (inner >= kWide) return;
        for (const float weight : columns.low) low_.insert(low_.end(), inner, weight);
        for (const float weight : columns.high) high_.insert(high_.end(), inner, weight);
    }

private:
    // A row of src at the width of dst: the elements below and above each column.
    struct Row {
        Index index = -1;
        std::vector<float> below, above;
    };

    static Index size(const Between &axis) { return static_cast<Index>(axis.below.size()); }

    static void check(const Between &axis) {
        for (const auto count : {axis.above.size(), axis.low.size(), axis.high.size()})
            demand(count == axis.below.size(), "not two elements and weights for each of dst");
        for (const Ints &places : {axis.below, axis.above})
            for (const Index place : places)
                demand(place >= 0 && place < axis.from, "an element beyond src");
    }

    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        auto *dst = static_cast<Element *>(slots[1]);
        const Index height = size(rows_);
        if (width_ == 0) return;
        parallel(outer_ * height, 4 * outer_ * height * width_, [&](Index begin, Index end) {
            std::array<Row, 2> cached;
            Index image = -1;
            for (Index piece = begin; piece < end; ++piece) {
                const Index row = piece % height;
                const Element *from =
                    src + piece / height * rows_.from * columns_.from * inner_;
                Element *to = dst + piece * width_;
                if (inner_ >= kWide) {
                    blend_in_place(from, row, to);
                    continue;
                }
                if (image != piece / height) cached[0].index = cached[1].index = -1;
                image = piece / height;
                blend(from, row, cached, to);
            }
        });
    }

    // Computes a row of dst from two rows of src, which are spread to its width before; they are
    // found in `cached` if the row before needed them.
    void blend(const Element *from, Index row, std::array<Row, 2> &cached, Element *dst) const {
        const auto at = static_cast<std::size_t>(row);
        const Index below = rows_.below[at], above = rows_.above[at];
        if (cached[1].index == below || cached[0].index == above) std::swap(cached[0], cached[1]);
        spread(from, below, cached[0]);
        if (above != below) spread(from, above, cached[1]);
        const Row &next = above != below ? cached[1] : cached[0];
        add_up(rows_.low[at], rows_.high[at], cached[0], next, dst);
    }

    void spread(const Element *from, Index index, Row &row) const {
        if (row.index == index) return;
        row.index = index;
        const Element *src = from + index * columns_.from * inner_;
        spread_to(src, columns_.below, row.below);
        spread_to(src, columns_.above, row.above);
    }

    void spread_to(const Element *src, const Ints &places, std::vector<float> &row) const {
        row.resize(static_cast<std::size_t>(width_));
        float *to = row.data();
        if (inner_ == 1) {
            for (const Index place : places) *to++ = static_cast<float>(src[place]);
            return;
        }
        for (const Index place : places)
            for (Index i = 0; i < inner_; ++i)
                *to++ = static_cast<float>(src[place * inner_ + i]);
    }

    void add_up(float low, float high, const Row &below, const Row &above, Element *dst) const {
        const float *left = low_.data(), *right = high_.data();
        const float *a = below.below.data(), *b = below.above.data();
        const float *c = above.below.data(), *d = above.above.data();
        for (Index i = 0; i < width_; ++i) {
            float sum = term(low * left[i], a[i]) + term(low * right[i], b[i]);
            sum += term(high * left[i], c[i]);
            dst[i] = static_cast<Element>(sum + term(high * right[i], d[i]));
        }
    }

    void blend_in_place(const Element *from, Index row, Element *dst) const {
        const auto at = static_cast<std::size_t>(row);
        const Index line = columns_.from * inner_;
        const Element *below = from + rows_.below[at] * line, *above = from + rows_.above[at] * line;
        for (std::size_t column = 0; column < columns_.below.size(); ++column, dst += inner_) {
            const Index left = columns_.below[column] * inner_;
            const Index right = columns_.above[column] * inner_;
            add_four({rows_.low[at] * columns_.low[column], rows_.low[at] * columns_.high[column],
                      rows_.high[at] * columns_.low[column],
                      rows_.high[at] * columns_.high[column]},
                     below + left, below + right, above + left, above + right, dst);
        }
    }

    void add_four(const std::array<float, 4> &weights, const Element *a, const Element *b,
                  const Element *c, const Element *d, Element *dst) const {
        const auto [left, right, lower_left, lower_right] = weights;
        for (Index i = 0; i < inner_; ++i) {
            float sum = term(left, static_cast<float>(a[i])) +
                        term(right, static_cast<float>(b[i]));
            sum += term(lower_left, static_cast<float>(c[i]));
            dst[i] = static_cast<Element>(sum + term(lower_right, static_cast<float>(d[i])));
        }
    }

    Index outer_, inner_, width_ = 0;
    Between rows_, columns_;
    std::vector<float> low_, high_;  // the columns' weights, for each element of a row
};

}  // namespace

Step *bilinear(const std::string &dtype, Index outer, const Between &rows, const Between &columns,
               Index inner) {
    return with_fraction(dtype, [&]<class T>(Type<T>) -> Step * {
        return new Bilinear<T>(outer, rows, columns, inner);
    });
}

}  // namespace vtensor::eigen
