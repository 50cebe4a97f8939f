// The page of hone bench all: the machine and a table for each benchmark.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/json_value.h"

namespace hone {

struct BenchPart {
  std::string name;
  std::string command;
  Json rows;            // as results.h writes them
  std::string failure;  // empty: it succeeded
};
struct BenchPage {
  std::vector<std::pair<std::string, std::string>> machine;  // names and values
  std::vector<BenchPart> parts;
};

// Returns the page as HTML without scripts and without anything from elsewhere.
[[nodiscard]] std::string bench_page(const BenchPage& page);

}  // namespace hone
