#include "output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace kvarto::cli {
namespace {

// Bytes of the well-formed UTF-8 character at the start of `text`; 0 if there is none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t count = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < count) return 0;
  for (std::size_t i = 1; i < count; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return count;
}

// The code point of a well-formed character of `count` bytes.
char32_t code_point(std::string_view text, std::size_t count) {
  constexpr std::array<unsigned char, 5> kLeadBits = {0, 0x7F, 0x1F, 0x0F, 0x07};
  char32_t code = static_cast<unsigned char>(text[0]) & kLeadBits[count];
  for (std::size_t i = 1; i < count; ++i) {
    code = (code << 6) | (static_cast<unsigned char>(text[i]) & 0x3F);
  }
  return code;
}

// Whether a terminal would obey the character instead of showing it: C0 and C1, ends of lines, and
// marks that turn the direction of the text around it (Unicode Standard Annex 9).
bool is_control(char32_t code) {
  const auto is_between = [&](char32_t first, char32_t last) {
    return code >= first && code <= last;
  };
  return code < 0x20 || is_between(0x7F, 0x9F) || code == 0x061C || is_between(0x200E, 0x200F) ||
         is_between(0x2028, 0x202E) || is_between(0x2066, 0x2069);
}

// Characters of `text`, one column each.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

std::string printable(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const std::size_t count = character_bytes(text);
    if (count == 0 || is_control(code_point(text, count))) {
      safe += '?';
    } else {
      safe += text.substr(0, count);
    }
    text.remove_prefix(std::max<std::size_t>(count, 1));
  }
  return safe;
}

void Output::line(std::string_view text) {
  text_ += printable(text);
  text_ += '\n';
}

void Output::styled(std::string_view escape, std::string_view text) {
  if (!has_color_) return line(text);
  text_ += fmt::format("\x1b[{}m{}\x1b[0m\n", escape, printable(text));
}

void Output::heading(std::string_view text) { styled("1", text); }

void Output::note(std::string_view text) { styled("33", fmt::format("note: {}", text)); }

Status Output::write() {
  const bool is_written = std::fwrite(text_.data(), 1, text_.size(), stdout) == text_.size() &&
                          std::fflush(stdout) == 0;
  text_.clear();
  if (is_written || errno == EPIPE) return {};
  return fail(ErrorCode::kIo, fmt::format("standard output: {}", std::strerror(errno)));
}

void Table::print(Output& out, std::string_view indent) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(width(columns_[c].title));
    for (const auto& cells : rows_) widths[c] = std::max(widths[c], width(cells[c]));
  }
  const auto print_row = [&](const auto& cell_of) {
    std::string text(indent);
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (widths[c] == 0) continue;  // a column that has nothing to say
      const std::string& cell = cell_of(c);
      const std::string pad(widths[c] - width(cell), ' ');
      if (c > 0) text += "  ";
      text += columns_[c].align == Align::kLeft ? cell + pad : pad + cell;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out.line(text);
  };
  const bool has_titles = std::any_of(columns_.begin(), columns_.end(),
                                      [](const Column& column) { return !column.title.empty(); });
  if (has_titles) print_row([&](std::size_t c) -> const std::string& { return columns_[c].title; });
  for (const auto& cells : rows_) {
    print_row([&](std::size_t c) -> const std::string& { return cells[c]; });
  }
}

}  // namespace kvarto::cli
