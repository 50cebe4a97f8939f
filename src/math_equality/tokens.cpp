#include "math_equality/tokens.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/characters.h"

namespace hone {
namespace {

// Characters beyond ASCII and the equivalent commands or signs.
constexpr std::array kUnicode = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"−", "-"},       {"×", "*"},       {"⋅", "*"},          {"∙", "*"},          {"∗", "*"},      {"÷", "/"},
     {"∕", "/"},       {"π", "\\pi"},    {"≈", "\\approx"},   {"≤", "\\leq"},      {"≥", "\\geq"},  {"≠", "\\neq"},
     {"±", "\\pm"},    {"∪", "\\cup"},   {"∩", "\\cap"},      {"∅", "\\emptyset"}, {"°", "\\circ"}, {"α", "\\alpha"},
     {"β", "\\beta"},  {"γ", "\\gamma"}, {"θ", "\\theta"},    {"λ", "\\lambda"},   {"μ", "\\mu"},   {"φ", "\\phi"},
     {"ω", "\\omega"}, {"≡", "="},       {"∖", "\\setminus"}, {"∉", "\\notin"},    {"∞", "\\infty"}});

// Notations of named sets.
constexpr std::array kSets = std::to_array<std::pair<std::string_view, std::string_view>>({{"\\mathbb{N}", "naturals"},
                                                                                           {"ℕ", "naturals"},
                                                                                           {"\\mathbb{Z}", "integers"},
                                                                                           {"ℤ", "integers"},
                                                                                           {"\\mathbb{Q}", "rationals"},
                                                                                           {"ℚ", "rationals"},
                                                                                           {"\\mathbb{R}", "reals"},
                                                                                           {"ℝ", "reals"},
                                                                                           {"\\mathbb{C}", "complexes"},
                                                                                           {"ℂ", "complexes"},
                                                                                           {"\\mathbb{P}", "primes"},
                                                                                           {"ℙ", "primes"}});

constexpr std::array kSkipped = std::to_array<std::string_view>(
    {"\\,", "\\:", "\\;", "\\!", "\\$", "\\thinspace", "\\medspace", "\\thickspace", "\\quad", "\\qquad",
     "\\negthinspace", "\\negmedspace", "\\negthickspace", "\\hfil"});

// Commands whose argument is a name. Text commands leave the name unchanged; accents and fonts become a part of it.
constexpr std::array kPlainNames =
    std::to_array<std::string_view>({"\\text", "\\textit", "\\textbf", "\\textnormal", "\\mbox"});
constexpr std::array kMarkedNames = std::to_array<std::string_view>(
    {"\\acute",  "\\bar",     "\\overline",  "\\breve",  "\\check",          "\\dot",    "\\ddot",       "\\grave",
     "\\hat",    "\\tilde",   "\\widetilde", "\\vec",    "\\overrightarrow", "\\bm",     "\\boldsymbol", "\\mathbb",
     "\\mathbf", "\\mathcal", "\\mathfrak",  "\\mathit", "\\mathnormal",     "\\mathrm", "\\mathscr",    "\\mathsf",
     "\\mathtt"});

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::optional<std::vector<MathToken>> run() {
    while (at_ < text_.size()) {
      if (!next()) return std::nullopt;
    }
    return std::move(tokens_);
  }

 private:
  using Kind = MathToken::Kind;

  bool next() {
    const char c = text_[at_];
    for (const auto& [sign, name] : kSets) {
      if (!text_.substr(at_).starts_with(sign)) continue;
      at_ += sign.size();
      push(Kind::kNamedSet, std::string(name));
      return true;
    }
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      ++at_;
      return true;
    }
    if (is_digit(c) || (c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) return number();
    if (is_letter(c)) return letter();
    if (c == '\\') return command();
    if (static_cast<unsigned char>(c) >= 0x80) return unicode();
    constexpr std::string_view kPunctuation = "+-*/(){}[]|^_,;:=<>!&~.";
    if (kPunctuation.find(c) == std::string_view::npos) return false;
    constexpr std::array<std::string_view, 5> kPairs = {"<=", ">=", "!=", "==", "~="};
    const std::string_view pair = text_.substr(at_, 2);
    const bool paired = std::ranges::find(kPairs, pair) != kPairs.end();
    push(Kind::kPunctuation, std::string(paired ? pair : pair.substr(0, 1)));
    at_ += paired ? 2 : 1;
    return true;
  }

  bool number() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ + 1 < text_.size() && text_[at_] == '.' && is_digit(text_[at_ + 1])) {
      for (++at_; at_ < text_.size() && is_digit(text_[at_]);) ++at_;
    }
    std::string digits(text_.substr(begin, at_ - begin));
    if (const std::size_t end = exponent_end(); end > at_) {
      push(Kind::kNumber, digits + std::string(text_.substr(at_, end - at_)));
      at_ = end;
      return true;
    }
    std::size_t sign = at_ + (at_ < text_.size() && text_[at_] == ' ' ? 1 : 0);
    if (text_.substr(sign).starts_with("\\%")) ++sign;
    const bool percent = sign < text_.size() && text_[sign] == '%';
    if (percent) at_ = sign + 1;
    push(percent ? Kind::kPercentage : Kind::kNumber, std::move(digits));
    return true;
  }

  // Returns the offset after an exponent such as "E+12"; at_ if there is none.
  [[nodiscard]] std::size_t exponent_end() const {
    if (at_ >= text_.size() || text_[at_] != 'E') return at_;
    std::size_t digit = at_ + 1;
    if (digit < text_.size() && (text_[digit] == '+' || text_[digit] == '-')) ++digit;
    if (digit >= text_.size() || !is_digit(text_[digit])) return at_;
    while (digit < text_.size() && is_digit(text_[digit])) ++digit;
    return digit;
  }

  // Reads one letter; "d" and the next letter form one name, as in dx.
  bool letter() {
    std::string name(1, text_[at_++]);
    if (name == "d") {
      const std::size_t second = skip_spaces(text_, at_);
      if (second < text_.size() && is_letter(text_[second])) {
        name += text_[second];
        at_ = second + 1;
      }
    }
    push(Kind::kLetter, std::move(name));
    return true;
  }

  bool unicode() {
    for (const auto& [character, meaning] : kUnicode) {
      if (!text_.substr(at_).starts_with(character)) continue;
      at_ += character.size();
      push(meaning.front() == '\\' ? Kind::kCommand : Kind::kPunctuation, std::string(meaning));
      return true;
    }
    return false;
  }

  bool command() {
    std::size_t end = at_ + 1;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    if (end == at_ + 1) end = std::min(end + 1, text_.size());
    const std::string_view name = text_.substr(at_, end - at_);
    if (name.size() < 2) return false;
    at_ = end;
    if (std::ranges::find(kSkipped, name) != kSkipped.end()) return true;
    const bool plain = std::ranges::find(kPlainNames, name) != kPlainNames.end();
    const bool marked = std::ranges::find(kMarkedNames, name) != kMarkedNames.end();
    if (plain || marked || name == "\\begin" || name == "\\end") return with_name(name, plain);
    push(Kind::kCommand, std::string(name));
    return true;
  }

  bool with_name(std::string_view command, bool plain) {
    const std::size_t open = skip_spaces(text_, at_);
    if (open >= text_.size() || text_[open] != '{') return false;
    const std::size_t close = text_.find('}', open);
    if (close == std::string_view::npos) return false;
    std::string name;
    for (const char c : text_.substr(open + 1, close - open - 1)) {
      if (c != ' ' && !(plain && (c == '(' || c == ')'))) name += lower(c);
    }
    at_ = close + 1;
    if (command == "\\begin" || command == "\\end") {
      push(Kind::kEnvironment, std::string(command.substr(1)) + " " + name);
    } else {
      push(Kind::kNamed, plain ? name : std::string(command) + "{" + name + "}");
    }
    return true;
  }

  void push(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text)}); }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<MathToken> tokens_;
};

}  // namespace

std::optional<std::vector<MathToken>> tokenize_latex(std::string_view text) { return Lexer(text).run(); }

}  // namespace hone
