// native/narrow/convolution.cpp: convolutions of bytes, as products of windows and panels.
#include <cstring>

#include "operands.h"
#include "window.h"

namespace vtensor::narrow {

namespace {

// Bytes that may be read after an image, and written after rows.
constexpr Index kSlack = 64;

// The windows of an image that is in the kernel's form and has its pads: rows of a product.
class Windows final : public Rows {
public:
    Windows(const Shape &shape, const Window &window, const std::byte *image, Index zero)
        : shape_(shape), window_(window), image_(image), zero_(zero) {}

    bool in_place() const override { return false; }

    const std::byte *rows(Index first, Index count, std::byte *scratch,
                          Index *stride) const override {
        const Ints &dst = window_.dst, &taps = window_.taps, &steps = window_.dilations;
        const Index pixel = window_.pixel_bytes();
        const bool joined = steps[2] == 1;
        const Index runs = joined ? 1 : taps[2], run = joined ? taps[2] * pixel : pixel;
        const Index rest = shape_.row_bytes() - product_of(taps) * pixel;
        *stride = shape_.row_bytes();
        Index x = first % dst[2], y = first / dst[2] % dst[1], z = first / dst[2] / dst[1];
        std::byte *to = scratch;
        for (Index row = 0; row < count; ++row) {
            const std::byte *from = image_ + window_.offset(z, y, x);
            for (Index depth = 0; depth < taps[0]; ++depth) {
                for (Index height = 0; height < taps[1]; ++height) {
                    const std::byte *line =
                        from + window_.padded_offset(depth * steps[0], height * steps[1], 0);
                    for (Index i = 0; i < runs; ++i, to += run)
                        copy(line + i * steps[2] * pixel, run, to);
                }
            }
            std::memset(to, 0, static_cast<std::size_t>(rest));
            to += rest;
            if (++x == dst[2]) {
                x = 0;
                if (++y == dst[1]) y = 0, ++z;
            }
        }
        return scratch;
    }

    Index zero(Index) const override { return zero_; }

private:
    // Copies some bytes. There is room for more after both: what is written too much is written
    // again, or is not used.
    static void copy(const std::byte *from, Index bytes, std::byte *to) {
        if (bytes <= 16) {
            std::memcpy(to, from, 16);
        } else if (bytes <= 32) {
            std::memcpy(to, from, 32);
        } else if (bytes <= kSlack) {
            std::memcpy(to, from, kSlack);
        } else {
            std::memcpy(to, from, static_cast<std::size_t>(bytes));
        }
    }

    const Shape &shape_;
    const Window &window_;
    const std::byte *image_;
    Index zero_;
};

Shape shape_of(const Convolution &call, const Window &window) {
    const Kind &kind = kind_for(call.instructions, product_of(call.dst));
    const Index channels = call.channels / call.groups, stored = up(channels, kGroup);
    const Index taps = product_of(call.taps), depth = taps * stored;
    Shape shape{&kind,
                window.packer,
                taps * channels,
                up(depth, kind.depth),
                depth / kGroup,
                call.outputs / call.groups,
                false,
                {}};
    shape.ones.resize(static_cast<std::size_t>(shape.length));
    for (Index i = 0; i < depth; ++i)
        shape.ones[static_cast<std::size_t>(i)] = static_cast<std::byte>(i % stored < channels);
    return shape;
}

// Returns how many groups are one group of a product, whose weights are 0 where a channel and an
// output are of two groups: as many as fill a panel.
Index joined(const Convolution &call) {
    if (call.groups <= 1 || call.weights != "plain" || call.outputs < call.groups) return 1;
    Index count = std::max<Index>(kPanel / (call.outputs / call.groups), 1);
    while (call.groups % count != 0) --count;
    return count;
}

Convolution with_joined_groups(Convolution call) {
    call.groups /= joined(call);
    return call;
}

class Sliding final : public Multiplying {
public:
    explicit Sliding(const Convolution &call)
        : Sliding(with_joined_groups(checked(call)), joined(call)) {}

private:
    Sliding(const Convolution &call, Index joined)
        : Multiplying("convolution " + call.instructions, call.ending, call.outputs,
                      times(times(call.images, product_of(call.dst)), call.outputs)),
          call_(call),
          window_(call, kind_for(call.instructions, product_of(call.dst)),
                  up(call.channels / call.groups, kGroup)),
          shape_(shape_of(call, window_)), signed_weights_(is_signed(call.weights_type)),
          joined_(joined) {
        demand(call.src_zeros == 0 || call.src_zeros == 1, "an image has one zero point");
        demand(call.weights_zeros == 0 || call.weights_zeros == 1 ||
                   call.weights_zeros == call.outputs,
               "weights have one zero point, or one for each output");
        demand(call.weights == "panels" || call.weights == "plain",
               "weights are stored as panels or plain");
        const bool packs = call.weights == "plain";
        const Index panels = times(times(call.groups, shape_.panels()), shape_.panel_bytes());
        images_bytes_ = up(times(times(call.images, call.groups), window_.bytes()), 64);
        room_ = eigen::plus(images_bytes_, packs ? up(panels, 64) : 0);
        add_operands(times(times(call.images, product_of(call.src)), call.channels),
                     packs ? times(call.outputs, shape_.depth / joined) : panels, call.src_zeros,
                     call.weights_zeros,
                     eigen::plus(room_, times(threads_, shape_.scratch_bytes())));
    }

    static const Convolution &checked(const Convolution &call) {
        check_window(call);
        demand(call.groups > 0 && call.channels % call.groups == 0 &&
                   call.outputs % call.groups == 0,
               "the groups have equal parts of channels and outputs");
        demand(call.channels > 0, "there is nothing to sum");
        return call;
    }

    void compute(const Operands &at) const override {
        const Index zero =
            at.left_zeros == nullptr ? 0 : window_.packer.number(*at.left_zeros);
        const Index images = call_.images * call_.groups, lines = window_.lines();
        const Index channels = call_.channels / call_.groups;
        share(images * lines, images * window_.bytes(), [&](Index, Index piece) {
            const Index image = piece / lines, line = piece % lines;
            window_.fill(at.left + image / call_.groups * product_of(call_.src) * call_.channels +
                             image % call_.groups * channels,
                         call_.channels, channels, zero, line,
                         at.scratch + image * window_.bytes());
        });
        const Index pixels = product_of(call_.dst), panels = shape_.panels();
        const auto *weights = reinterpret_cast<const std::int8_t *>(at.right);
        if (room_ > images_bytes_) {
            auto *packed = reinterpret_cast<std::int8_t *>(at.scratch + images_bytes_);
            share(call_.groups * panels, call_.outputs * shape_.depth * 4,
                  [&](Index, Index piece) {
                      pack(at, piece / panels, piece % panels,
                           packed + piece * shape_.panel_bytes());
                  });
            weights = packed;
        }
        const Parts parts =
            images >= 4 * threads_ ? Parts{1, 1} : Parts::of(threads_, pixels, panels);
        const bool zeros = any_zero(at.right_zeros, call_.weights_zeros, signed_weights_);
        const Index work = images * pixels * shape_.columns * shape_.depth;
        share(images * parts.count(), work, [&](Index worker, Index piece) {
            const Index image = piece / parts.count(), part = piece % parts.count();
            const Index group = image % call_.groups;
            const Windows rows(shape_, window_, at.scratch + image * window_.bytes(), zero);
            const Factors factors{&rows,
                                  weights + group * panels * shape_.panel_bytes(),
                                  zeros ? at.right_zeros : nullptr,
                                  call_.weights_zeros <= 1,
                                  signed_weights_,
                                  &at.ending,
                                  image / call_.groups * pixels * call_.outputs +
                                      group * shape_.columns,
                                  call_.outputs,
                                  group * shape_.columns};
            multiply(shape_, ending_, factors, parts.rows(part, pixels),
                     parts.panels(part, panels),
                     at.scratch + room_ + worker * shape_.scratch_bytes());
        });
    }

    // Makes a panel of plain weights. Where there are none, it has the zero point.
    void pack(const Operands &at, Index group, Index panel, std::int8_t *to) const {
        const Index taps = product_of(call_.taps), groups = window_.stored / kGroup;
        const Index channels = call_.channels / call_.groups / joined_;
        const Index outputs = shape_.columns / joined_;
        const std::uint8_t flip = signed_weights_ ? 0 : 0x80;
        for (Index i = 0; i < kPanel; ++i) {
            const Index column = panel * kPanel + i, output = group * shape_.columns + column;
            if (column >= shape_.columns) break;
            const Index zero_at = call_.weights_zeros > 1 ? output : 0;
            const std::uint8_t zero = at.right_zeros[zero_at] ^ flip;
            const std::uint8_t *from = at.right + output * taps * channels;
            for (Index tap = 0; tap < taps; ++tap) {
                std::int8_t *own = to + tap * groups * kUnit + i * kGroup;
                for (Index channel = 0; channel < window_.stored; ++channel)
                    own[channel / kGroup * kUnit + channel % kGroup] =
                        static_cast<std::int8_t>(zero);
                for (Index channel = 0; channel < channels; ++channel) {
                    const Index place = column / outputs * channels + channel;
                    own[place / kGroup * kUnit + place % kGroup] =
                        static_cast<std::int8_t>(*from++ ^ flip);
                }
            }
        }
    }

    Convolution call_;
    Window window_;
    Shape shape_;
    bool signed_weights_;
    Index joined_;
    Index images_bytes_ = 0, room_ = 0;
};

// Returns whether each pixel of src is a row of a product as it is.
bool is_product(const Convolution &call) {
    const auto all = [](const Ints &numbers, Index number) {
        return std::all_of(numbers.begin(), numbers.end(), [=](Index n) { return n == number; });
    };
    return call.groups == 1 && all(call.taps, 1) && all(call.strides, 1) && all(call.begin, 0) &&
           call.src == call.dst;
}

}  // namespace

Step *convolution(const Convolution &call) {
    check_window(call);
    if (!is_product(call)) return new Sliding(call);
    demand(call.src_zeros <= 1, "an image has one zero point");
    return product({call.instructions, {}, {}, {}, times(call.images, product_of(call.src)),
                    call.outputs, call.channels, call.src_type, call.weights_type,
                    call.weights == "plain" ? "columns" : call.weights,
                    call.src_zeros, call.weights_zeros, call.ending});
}

}  // namespace vtensor::narrow
