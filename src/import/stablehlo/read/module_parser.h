// The parser of modules: types, attributes and what all operations share. Forms of single operations are in
// pretty_forms.cpp.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "import/stablehlo/read/module_text.h"
#include "support/text_reader.h"

namespace tessera::inline stablehlo {

class ModuleParser {
 public:
  ModuleParser(std::string_view text, const std::string& file) : reader_(text, file) {}
  HloModule run();

 private:
  // ---- types and attributes ----
  HloType type();
  HloType tensor_type();
  // In parentheses, or separated by commas without them.
  std::vector<HloType> type_list();
  std::vector<HloType> type_list_of_one();  // without parentheses, one type
  // The types of an operation's results, behind its ':'.
  std::vector<HloType> result_types(const HloOperation& op);
  // `typed`: a number may have its type behind it.
  HloAttr attribute(bool typed = true);
  HloAttr number(bool typed);
  HloAttr dialect_attribute();
  HloAttr convolution_numbers();
  HloAttr list(std::string_view close, bool typed = true);
  HloAttr dictionary(std::string_view close);
  void optional_dictionary(HloOperation& op);
  void skip_to(std::string_view close);
  std::string location();  // the name in it, an alias ("#loc3"), or nothing

  // ---- operations ----
  std::string value_name();
  std::vector<std::string> value_names(std::string_view close);
  HloOperation operation();
  void generic_form(HloOperation& op);
  HloRegion region();
  HloArgument argument();

  // ---- the form that is printed by default (pretty_forms.cpp) ----
  void pretty_form(HloOperation& op);
  void items(HloOperation& op, bool inside);
  void reduce_form(HloOperation& op);
  void while_form(HloOperation& op);
  void slice_ranges(HloOperation& op);
  HloFunction function();

  HloFunction function_of(HloOperation op);
  void top_level(HloModule& module);
  void module_body(HloModule& module);
  void resolve_locations(HloRegion& region) const;
  std::string resolved(std::string loc) const;

  // Counts what stands inside each other.
  class Depth {
   public:
    explicit Depth(ModuleParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMostDepth)
        parser_.reader_.fail("TSR-1121", "brackets inside each other without end", "at most 200");
    }
    ~Depth() { --parser_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    static constexpr int kMostDepth = 200;
    ModuleParser& parser_;
  };

  TextReader reader_;
  std::map<std::string, std::string> locations_;  // aliases
  int depth_ = 0;
};

}  // namespace tessera::inline stablehlo
