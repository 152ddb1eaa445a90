// native/eigen/lookup.cpp: values by key, found by bisection.
#include <algorithm>

#include "elements.h"
#include "parallel.h"
#include "trees.h"

namespace vtensor::eigen {

namespace {

// The order of keys: NaN comes last, and all NaN are equal.
template <class Key>
bool before(Key a, Key b) {
    return a < b || (!is_nan(a) && is_nan(b));
}

template <class Key, class Value>
class Lookup final : public Step {
public:
    Lookup(Index elements, Index keys) : Step("lookup"), elements_(elements), keys_(keys) {
        demand(elements >= 0 && keys >= 0, "a size is negative");
        add_slot("src", VTENSOR_READ, elements, sizeof(Key));
        add_slot("keys", VTENSOR_READ, keys, sizeof(Key));
        add_slot("values", VTENSOR_READ, plus(keys, 1), sizeof(Value));
        add_slot("dst", VTENSOR_WRITE, elements, sizeof(Value));
    }

private:
    void run(void *const *slots) const override {
        const auto *src = static_cast<const Key *>(slots[0]);
        const auto *keys = static_cast<const Key *>(slots[1]);
        const auto *values = static_cast<const Value *>(slots[2]);
        auto *dst = static_cast<Value *>(slots[3]);
        parallel(elements_, elements_ * 16, [&](Index begin, Index end) {
            for (Index at = begin; at < end; ++at) {
                const Key *key = std::lower_bound(keys, keys + keys_, src[at], before<Key>);
                const bool found = key != keys + keys_ && !before(src[at], *key);
                dst[at] = values[found ? key - keys : keys_];
            }
        });
    }

    Index elements_, keys_;
};

}  // namespace

Step *lookup(const std::string &dtype, Index item_bytes, Index elements, Index keys) {
    return with_type(dtype, [&]<class K>(Type<K>) {
        return with_bytes(item_bytes, [&]<class V>(Type<V>) -> Step * {
            return new Lookup<K, V>(elements, keys);
        });
    });
}

}  // namespace vtensor::eigen
