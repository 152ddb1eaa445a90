// native/onednn/names.cpp: oneDNN's enumerators by the names that the library prints.
#include "names.h"

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>

namespace vtensor::onednn {

namespace {

constexpr std::array kTypes{dnnl_f32, dnnl_bf16, dnnl_f16, dnnl_s32, dnnl_s8, dnnl_u8};

// Parses a tag's name: "aBcd16b" has four dims, the second in blocks of 16.
Tag parse_tag(const std::string &name, dnnl_format_tag_t value) {
    Tag parsed{name, value, 0, {}};
    for (const char c : parsed.name) {
        if (std::isalpha(static_cast<unsigned char>(c)) != 0)
            parsed.rank = std::max(parsed.rank, std::tolower(c) - 'a' + 1);
    }
    parsed.block.assign(static_cast<std::size_t>(parsed.rank), 1);
    dnnl_dim_t number = 0;
    for (const char c : parsed.name) {
        if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
            number = number * 10 + (c - '0');
        } else if (number != 0) {
            parsed.block[static_cast<std::size_t>(c - 'a')] *= number;
            number = 0;
        }
    }
    return parsed;
}

std::vector<Tag> read_tags() {
    std::vector<Tag> found;
    for (int v = dnnl_format_tag_any + 1; v < dnnl_format_tag_last; ++v) {
        const auto value = static_cast<dnnl_format_tag_t>(v);
        const std::string name = dnnl_fmt_tag2str(value);
        // A library older than the headers may lack the last tags.
        if (name.find_first_of(" _") == std::string::npos) found.push_back(parse_tag(name, value));
    }
    return found;
}

// Returns the algorithms from `first` on whose printed names begin with `prefix`; each family of
// the enum is within `room` numbers.
Algorithms read_algorithms(const std::string &prefix, dnnl_alg_kind_t first, int room) {
    Algorithms found;
    for (int v = first; v < first + room; ++v) {
        const auto value = static_cast<dnnl_alg_kind_t>(v);
        const std::string name = dnnl_alg_kind2str(value);
        if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), value);
    }
    return found;
}

template <typename Names>
std::string listed(const Names &names) {
    std::string text;
    for (const auto &name : names) text += (text.empty() ? "" : ", ") + std::string(name);
    return text;
}

}  // namespace

dnnl_data_type_t data_type(const std::string &name) {
    std::vector<std::string> known;
    for (const dnnl_data_type_t type : kTypes) {
        if (name_of(type) == name) return type;
        known.push_back(name_of(type));
    }
    throw std::invalid_argument("unknown element type '" + name + "'; one of " + listed(known));
}

std::string name_of(dnnl_data_type_t type) { return dnnl_dt2str(type); }

std::size_t item_bytes(dnnl_data_type_t type) { return dnnl_data_type_size(type); }

const std::vector<Tag> &tags() {
    static const std::vector<Tag> all = read_tags();
    return all;
}

const Tag &tag(const std::string &name) {
    const auto &all = tags();
    const auto found = std::ranges::find(all, name, &Tag::name);
    if (found == all.end())
        throw std::invalid_argument("unknown format tag '" + name +
                                    "'; tags are spelled canonically, as in abcd or aBcd16b");
    return *found;
}

const Algorithms &eltwise_algorithms() {
    static const Algorithms all = [] {
        Algorithms found = read_algorithms("eltwise_", dnnl_eltwise_relu, 0x40);
        for (auto &more :
             read_algorithms("eltwise_", dnnl_eltwise_relu_use_dst_for_bwd, 0x40))
            found.push_back(std::move(more));
        return found;
    }();
    return all;
}

const Algorithms &binary_algorithms() {
    static const Algorithms all = read_algorithms("binary_", dnnl_binary_add, 0x10);
    return all;
}

const Algorithms &reduction_algorithms() {
    static const Algorithms all = read_algorithms("reduction_", dnnl_reduction_max, 0x20);
    return all;
}

const Algorithms &pooling_algorithms() {
    static const Algorithms all = [] {
        Algorithms found = read_algorithms("pooling_", dnnl_pooling_max, 1);
        for (const auto kind :
             {dnnl_pooling_avg_include_padding, dnnl_pooling_avg_exclude_padding})
            found.push_back(read_algorithms("pooling_", kind, 1).at(0));
        return found;
    }();
    return all;
}

const Algorithms &lrn_algorithms() {
    static const Algorithms all = [] {
        Algorithms found = read_algorithms("lrn_", dnnl_lrn_across_channels, 1);
        found.push_back(read_algorithms("lrn_", dnnl_lrn_within_channel, 1).at(0));
        return found;
    }();
    return all;
}

const Algorithms &resampling_algorithms() {
    static const Algorithms all = read_algorithms("resampling_", dnnl_resampling_nearest, 2);
    return all;
}

dnnl_alg_kind_t algorithm(const Algorithms &table, const std::string &name,
                          const std::string &what) {
    std::vector<std::string> known;
    for (const auto &[each, value] : table) {
        if (each == name) return value;
        known.push_back(each);
    }
    throw std::invalid_argument(what + ": unknown '" + name + "'; one of " + listed(known));
}

dnnl_fpmath_mode_t fpmath_mode(const std::string &name) {
    std::vector<std::string> known;
    for (int v = dnnl_fpmath_mode_strict; v <= dnnl_fpmath_mode_tf32; ++v) {
        const auto value = static_cast<dnnl_fpmath_mode_t>(v);
        known.emplace_back(dnnl_fpmath_mode2str(value));
        if (known.back() == name) return value;
    }
    throw std::invalid_argument("unknown fpmath mode '" + name + "'; one of " + listed(known));
}

}  // namespace vtensor::onednn
