// native/onednn/recurrent.cpp: recurrent networks.
#include <oneapi/dnnl/dnnl.h>

#include <string>
#include <utility>

#include "cache.h"
#include "names.h"
#include "operators.h"

namespace vtensor::onednn {

namespace {

struct Cell {
    const char *name;
    dnnl_dim_t gates, biases;  // rows of each unit in the weights, and in the bias
};

constexpr Cell kCells[] = {
    {"vanilla_rnn", 1, 1}, {"lstm", 4, 4}, {"gru", 3, 3}, {"lbr_gru", 3, 4}};

const Cell &cell_of(const std::string &name) {
    for (const Cell &cell : kCells)
        if (name == cell.name) return cell;
    refuse("recurrent: unknown cell '", name, "'; one of vanilla_rnn, lstm, gru, lbr_gru");
}

dnnl_rnn_direction_t direction_of(const std::string &name) {
    if (name == "forward") return dnnl_unidirectional_left2right;
    if (name == "reverse") return dnnl_unidirectional_right2left;
    if (name == "bidirectional") return dnnl_bidirectional_concat;
    refuse("recurrent: unknown direction '", name, "'; one of forward, reverse, bidirectional");
}

// Checks that an argument, if it is given, has these dims and is f32.
void expect(const char *role, const MaybeDesc &desc, const Ints &dims, bool written = false) {
    if (!desc) return;
    if (written)
        check_written("recurrent", role, *desc);
    else
        check_operand("recurrent", role, *desc);
    if (desc->dims() != dims)
        refuse("recurrent: ", role, " is ", shown(desc->dims()), "; it must be ", shown(dims));
    if (desc->type() != dnnl_f32) refuse("recurrent: ", role, " must be f32");
}

// Checks a sequence. Products of sizes that overflow a kernel's counters are refused first.
void check_sequence(const Cell &cell, const Sequence &s, bool both) {
    check_rank("recurrent", "src_layer", s.src, 3, 3);
    check_rank("recurrent", "weights_iter", s.recurrent, 5, 5);
    const dnnl_dim_t directions = both ? 2 : 1, units = s.recurrent.dims()[4];
    const Ints &src = s.src.dims();
    const dnnl_dim_t out = checked_product(directions, units, "recurrent: units");
    const Ints state{1, directions, src[1], units};
    expect("src_layer", s.src, src);
    expect("weights_layer", s.weights, {1, directions, src[2], cell.gates, units});
    expect("weights_iter", s.recurrent, {1, directions, units, cell.gates, units});
    expect("weights_peephole", s.peephole, {1, directions, 3, units});
    expect("bias", s.bias, {1, directions, cell.biases, units});
    expect("src_iter", s.hidden, state);
    expect("src_iter_c", s.content, state);
    expect("dst_layer", s.dst, {src[0], src[1], out}, true);
    expect("dst_iter", s.last_hidden, state, true);
    expect("dst_iter_c", s.last_content, state, true);
    const bool lstm = cell.name == std::string("lstm");
    if (!lstm && (s.peephole || s.content || s.last_content))
        refuse("recurrent: only an lstm has a content and peepholes");
    if (lstm && (s.hidden.has_value() != s.content.has_value() || !s.last_content))
        refuse("recurrent: an lstm has both states or none, and a last content");
}

}  // namespace

PrimitivePtr recurrent(const std::string &kind, const std::string &direction,
                       const Sequence &sequence, const std::string &activation, double alpha) {
    const Cell &cell = cell_of(kind);
    const dnnl_rnn_direction_t way = direction_of(direction);
    const bool plain = kind == "vanilla_rnn", lstm = kind == "lstm", reset = kind == "gru";
    check_sequence(cell, sequence, way == dnnl_bidirectional_concat);
    dnnl_alg_kind_t function = dnnl_alg_kind_undef;
    if (plain) {
        if (activation != "relu" && activation != "tanh" && activation != "logistic")
            refuse("recurrent: unknown activation '", activation, "'; relu, tanh or logistic");
        function = algorithm(eltwise_algorithms(), activation, "recurrent");
    }
    const float slope = checked_float("recurrent", "alpha", alpha);
    const Sequence s = sequence;
    std::vector<Argument> arguments{{"src_layer", DNNL_ARG_SRC_LAYER, VTENSOR_READ}};
    KeyWriter key;
    key.text(kind).text(direction).text(activation).number(slope);
    key.desc(&s.src).desc(&s.weights).desc(&s.recurrent).desc(&s.dst).desc(&s.last_hidden);
    const auto optional = [&](const MaybeDesc &desc, const char *name, int index,
                              std::uint32_t access) {
        key.desc(pointer(desc));
        if (desc) arguments.push_back({name, index, access});
    };
    optional(s.hidden, "src_iter", DNNL_ARG_SRC_ITER, VTENSOR_READ);
    optional(s.content, "src_iter_c", DNNL_ARG_SRC_ITER_C, VTENSOR_READ);
    arguments.push_back({"weights_layer", DNNL_ARG_WEIGHTS_LAYER, VTENSOR_READ});
    arguments.push_back({"weights_iter", DNNL_ARG_WEIGHTS_ITER, VTENSOR_READ});
    optional(s.peephole, "weights_peephole", DNNL_ARG_WEIGHTS_PEEPHOLE, VTENSOR_READ);
    optional(s.bias, "bias", DNNL_ARG_BIAS, VTENSOR_READ);
    arguments.push_back({"dst_iter", DNNL_ARG_DST_ITER, VTENSOR_WRITE});
    optional(s.last_content, "dst_iter_c", DNNL_ARG_DST_ITER_C, VTENSOR_WRITE);
    arguments.push_back({"dst_layer", DNNL_ARG_DST_LAYER, VTENSOR_WRITE});
    const auto create = [=](auto *pd, auto attr) {
        if (lstm)
            return dnnl_lstm_forward_primitive_desc_create(
                pd, engine(), dnnl_forward_inference, way, s.src.get(), raw(s.hidden),
                raw(s.content), s.weights.get(), s.recurrent.get(), raw(s.peephole), nullptr,
                raw(s.bias), s.dst.get(), s.last_hidden.get(), raw(s.last_content), 0, attr);
        if (plain)
            return dnnl_vanilla_rnn_forward_primitive_desc_create(
                pd, engine(), dnnl_forward_inference, function, way, s.src.get(), raw(s.hidden),
                s.weights.get(), s.recurrent.get(), raw(s.bias), s.dst.get(), s.last_hidden.get(),
                0, slope, 0, attr);
        return (reset ? dnnl_gru_forward_primitive_desc_create
                      : dnnl_lbr_gru_forward_primitive_desc_create)(
            pd, engine(), dnnl_forward_inference, way, s.src.get(), raw(s.hidden),
            s.weights.get(), s.recurrent.get(), raw(s.bias), s.dst.get(), s.last_hidden.get(), 0,
            attr);
    };
    Spec spec{"recurrent", key.take(), Attr(), arguments, s.dst.dims(), create};
    // oneDNN's name of this kernel is `ref`, but it multiplies by oneDNN's matrix kernels, and the
    // gates' functions are compiled.
    spec.reference = "gemm:jit";
    return find_or_make(spec);
}

}  // namespace vtensor::onednn
