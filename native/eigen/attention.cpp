// native/eigen/attention.cpp: attention, a tile of query rows at a time.
//
// The scores of a tile, and no more of them, are in memory: as many rows as the second-level cache
// holds. Threads share batches and tiles.
#include <Eigen/Core>
#include <algorithm>

#include "check.h"
#include "kernels.h"
#include "matrix.h"

namespace vtensor::eigen {

namespace {

// So many scores stay in the second-level cache, beside the operands.
constexpr Index kScores = 1 << 16;
constexpr Index kMostRows = 128, kFewestRows = 8;

using Row = Eigen::Map<Eigen::ArrayXf>;
using Spread = Eigen::Map<const Eigen::ArrayXf, Eigen::Unaligned, Eigen::InnerStride<>>;
using Kept = Eigen::Map<const Eigen::Array<bool, Eigen::Dynamic, 1>, Eigen::Unaligned,
                        Eigen::InnerStride<>>;

class Attend final : public Step {
public:
    Attend(const Ints &batch, const AttentionSizes &sizes, const std::vector<Ints> &strides,
           const std::vector<Mask> &masks, float scale, float masked)
        : Step("attention"), batch_(batch), sizes_(sizes), strides_(strides), masks_(masks),
          scale_(scale), masked_(masked), pieces_(product(batch)) {
        const auto &[queries, keys, features, values] = sizes_;
        demand(strides.size() == 4, "strides are of q, k, v and y");
        demand(keys > 0, "a mean over no keys");
        const Ints rows{queries, keys, keys, queries}, columns{features, features, values, values};
        const char *names[] = {"q", "k", "v", "y"};
        for (std::size_t i = 0; i < 3; ++i)
            add_slot(names[i], VTENSOR_READ, whole(strides[i], rows[i], columns[i], 1));
        for (const Mask &mask : masks_) {
            demand(mask.strides.size() == batch.size() + 2, "strides of a mask");
            Ints shape = batch;
            shape.insert(shape.end(), {queries, keys});
            add_slot("mask", VTENSOR_READ, reach(shape, mask.strides), mask.truth ? 1 : 4);
        }
        add_slot(names[3], VTENSOR_WRITE, whole(strides[3], rows[3], columns[3], 1));
        rows_ = std::clamp(kScores / keys, kFewestRows, kMostRows);
        tiles_ = (plus(queries, rows_) - 1) / rows_;
        pieces_ = times(pieces_, tiles_);
        work_ = times(times(pieces_, times(rows_, keys)), plus(features, values));
    }

private:
    // The elements from the first to the last that an operand's strides reach: of the batch's axes,
    // then of its rows.
    Index whole(const Ints &strides, Index rows, Index columns, Index step) const {
        demand(strides.size() == batch_.size() + 1, "strides of an operand");
        Ints shape = batch_, steps = strides;
        shape.insert(shape.end(), {rows, columns});
        steps.push_back(step);
        return reach(shape, steps);
    }

    Index offset(const Ints &strides, Index piece) const {
        Index at = 0;
        for (std::size_t axis = batch_.size(); axis-- > 0; piece /= batch_[axis])
            at += piece % batch_[axis] * strides[axis];
        return at;
    }

    void run(void *const *slots) const override {
        parallel(pieces_, work_, [&](Index begin, Index end) {
            Eigen::ArrayXf memory(rows_ * sizes_.keys), inverse(rows_);
            for (Index piece = begin; piece < end; ++piece)
                tile(slots, piece / tiles_, piece % tiles_ * rows_, memory.data(), inverse);
        });
    }

    ConstMatrix operand(void *const *slots, std::size_t i, Index batch, Index first, Index rows,
                        Index columns) const {
        const Index row = strides_[i].back();
        return {input(slots, i) + offset(strides_[i], batch) + first * row, rows, columns,
                Eigen::OuterStride<>(row)};
    }

    void tile(void *const *slots, Index batch, Index first, float *memory,
              Eigen::ArrayXf &inverse) const {
        const auto &[queries, keys, features, values] = sizes_;
        const Index rows = std::min(rows_, queries - first);
        MutableMatrix scores(memory, rows, keys, Eigen::OuterStride<>(keys));
        scores.noalias() = operand(slots, 0, batch, first, rows, features) *
                           operand(slots, 1, batch, 0, keys, features).transpose();
        for (Index i = 0; i < rows; ++i) {
            Row row(memory + i * keys, keys);
            row *= scale_;
            for (std::size_t m = 0; m < masks_.size(); ++m)
                hide(row, masks_[m], slots[3 + m], batch, first + i);
            row = (row - row.maxCoeff()).exp();
            inverse[i] = 1 / row.sum();
        }
        const Index last = strides_[3].back();
        float *to = output(slots, 3 + masks_.size()) + offset(strides_[3], batch) + first * last;
        MutableMatrix result(to, rows, values, Eigen::OuterStride<>(last));
        result.noalias() = scores * operand(slots, 2, batch, 0, keys, values);
        result.array().colwise() *= inverse.head(rows);
    }

    void hide(Row &row, const Mask &mask, const void *memory, Index batch, Index query) const {
        const Index at = offset(mask.strides, batch) + query * *(mask.strides.end() - 2);
        const Eigen::InnerStride<> step(mask.strides.back());
        if (mask.truth) {
            const Kept kept(static_cast<const bool *>(memory) + at, row.size(), step);
            row = kept.select(row, masked_);
        } else {
            row += Spread(static_cast<const float *>(memory) + at, row.size(), step);
        }
    }

    Ints batch_;
    AttentionSizes sizes_;
    std::vector<Ints> strides_;
    std::vector<Mask> masks_;
    float scale_, masked_;
    Index pieces_, rows_ = 0, tiles_ = 0, work_ = 0;
};

}  // namespace

Step *attention(const Ints &batch, const AttentionSizes &sizes, const std::vector<Ints> &strides,
                const std::vector<Mask> &masks, float scale, float masked) {
    return new Attend(batch, sizes, strides, masks, scale, masked);
}

}  // namespace vtensor::eigen
