// What a command prints: collected, made safe for terminals, and written once at the end.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvarto/result.h"

namespace kvarto::cli {

// Not thread-safe; one owner.
class Output {
 public:
  explicit Output(bool has_color) : has_color_(has_color) {}

  // Names come from files, so control characters and broken UTF-8 become '?'.
  void line(std::string_view text = "");
  void heading(std::string_view text);
  void note(std::string_view text);  // "note: ..."
  // A JSON document or text that is known to be clean.
  void verbatim(std::string_view text) { text_ += text; }

  // Writes everything to standard output. A reader that has gone away is no error.
  // Errors: kIo.
  [[nodiscard]] Status write();

 private:
  void styled(std::string_view escape, std::string_view text);

  bool has_color_;
  std::string text_;
};

// `text` with control characters, those of line ends and direction among them, and broken UTF-8
// replaced by '?'.
[[nodiscard]] std::string printable(std::string_view text);

// Rows of cells, aligned. The first column and those of `left` lean left, all others right.
class Table {
 public:
  enum class Align : unsigned char { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Requires: as many cells as columns.
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void print(Output& out, std::string_view indent = "  ") const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kvarto::cli
