// Limits of grammars that come from requests.
#pragma once

#include <cstdint>
#include <string_view>

#include "grammar/grammar.h"

namespace hone {

// Throws Error if a description is not valid UTF-8, has a NUL character, exceeds kMostGrammarBytes, kMostGrammarDepth
// or kMostRepetitions, or must be JSON and is not.
void check_grammar(const GrammarSpec& spec);

// Returns the characters of a regular expression, or of rules if `has_rules`, when its bounded repetitions are written
// out: a(bc{3}){2} has 9. Limited to `most` + 1. Throws Error if brackets are nested deeper than kMostGrammarDepth, or
// if repetitions are nested so that a text could be divided in too many ways.
[[nodiscard]] std::int64_t written_out_length(std::string_view expression, bool has_rules, std::int64_t most);

}  // namespace hone
