// native/eigen/trees.h: ensembles of decision trees; tables of keys.
#pragma once

#include <string>

#include "kernels.h"

namespace vtensor::eigen {

// The numbers of rows of x, of features of a row, of trees, of nodes, of votes and of targets (the
// classes of a classifier). aggregate: "SUM", "AVERAGE", "MIN" or "MAX" of the votes of all trees.
// plain: each node compares by <=, and NaN goes to the second child.
struct Forest {
    Index rows, features, trees, nodes, votes, targets;
    std::string aggregate;
    bool plain;
};

// What a classifier needs more. bases: how many base scores there are. binary: all votes are for
// one of two classes. positive: no vote is negative. complement: with two classes of which only the
// first has votes, the scores are 1 - s and s, not -s and s.
struct Classes {
    Index bases;
    bool binary, positive, complement;
};

// The votes of each row's leaves, aggregated per target; x is f32 or f64, and so are the weights of
// votes. dst: its element type is x's or f32.
Step *forest(const std::string &dtype, const std::string &to, const Forest &forest);

// The label of each row, and the scores of its classes, f32.
Step *tree_classifier(const std::string &dtype, const Forest &forest, const Classes &classes);

// The value of each element's key; dtype is the keys' element type, and values have item_bytes.
// keys ascend, NaN last; the value after theirs is that of elements that are no key.
Step *lookup(const std::string &dtype, Index item_bytes, Index elements, Index keys);

// The probabilities of classes from those of pairs, one of the first class against the second, for
// rows of f32.
Step *pair_probabilities(Index rows, Index classes);

}  // namespace vtensor::eigen
