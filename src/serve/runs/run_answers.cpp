#include "serve/runs/run_answers.h"

#include <string>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "serve/answer_head.h"
#include "serve/request_error.h"
#include "serve/runs/jsonl_slice.h"
#include "serve/runs/query.h"
#include "serve/runs/run_folders.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

constexpr std::int64_t kMaxOffset = std::int64_t{1} << 53;  // exact in JavaScript
constexpr std::uintmax_t kMaxResultsBytes = 16 << 20;

// Returns a text, cut between two characters if it is too long.
std::string cut(std::string text) {
  if (text.size() <= kMaxShownBytes) return text;
  std::size_t end = kMaxShownBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  const std::size_t left_out = text.size() - end;
  text.resize(end);
  return text_of(text, "\n[", left_out, " more bytes]");
}

// The step and the numbers of a row of metrics.jsonl; null if the line is no row.
Json metrics_row(const Json& line) {
  if (!line.contains("step") || !line["step"].is_number_integer()) return nullptr;
  Json row = Json::object();
  for (const auto& [name, value] : line.items())
    if (value.is_number() || value.is_null()) row[name] = value;
  return row;
}

// The values of the named keys that are texts, numbers, true or false, or objects of numbers; null if `needed` is
// missing.
Json chosen_values(const Json& line, std::initializer_list<const char*> keys, const char* needed) {
  if (!line.contains(needed) || !line[needed].is_string()) return nullptr;
  Json row = Json::object();
  for (const char* key : keys) {
    const auto found = line.find(key);
    if (found == line.end()) continue;
    if (found->is_string()) row[key] = cut(found->get<std::string>());
    if (found->is_number() || found->is_boolean()) row[key] = *found;
    if (!found->is_object()) continue;
    row[key] = Json::object();
    for (const auto& [name, value] : found->items())
      if (value.is_number() || value.is_null()) row[key][name] = value;
  }
  return row;
}

Json completion_row(const Json& line) {
  return chosen_values(line, {"step", "row", "prompt", "completion", "rewards", "advantage", "finish_reason"},
                       "completion");
}

Json sample_row(const Json& line) {
  return chosen_values(
      line, {"task", "id", "sample", "prompt", "gold", "completion", "extracted", "score", "tokens", "ended"},
      "completion");
}

std::string rows_of(const fs::path& path, const QueryParameters& query, Json (*row_of)(const Json&), std::size_t most) {
  const FilePosition from{.offset = static_cast<std::uint64_t>(query.integer("from", 0, 0, kMaxOffset)),
                          .check = query.text("check")};
  const LineSlice slice = read_lines(path, from, {.lines = most});
  Json rows = Json::array();
  std::int64_t bad = 0;
  for (const std::string& line : slice.lines) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Json row;
    try {
      const Json parsed = parse_json(line, "");
      if (parsed.is_object()) row = row_of(parsed);
    } catch (const Error&) {
      row = nullptr;
    }
    if (row.is_null())
      ++bad;
    else
      rows.push_back(std::move(row));
  }
  return json_text({{"rows", std::move(rows)},
                    {"bad", bad},
                    {"restarted", slice.restarted},
                    {"next", slice.next.offset},
                    {"check", slice.next.check},
                    {"size", slice.size}});
}

std::string list_of_runs(const fs::path& root) {
  const FoundRuns found = find_runs(root);
  fs::path name = fs::absolute(root).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  Json runs = Json::array();
  for (const RunFolder& run : found.runs) {
    runs.push_back({{"id", run.id},
                    {"metrics", run.has_metrics},
                    {"bytes", run.metrics_bytes},
                    {"age", run.age},
                    {"completions", run.completions},
                    {"results", run.has_results},
                    {"profile", run.has_profile}});
  }
  return json_text({{"root", name.filename().string()}, {"cut", found.is_cut}, {"runs", std::move(runs)}});
}

Json read_answer(const fs::path& path) {
  const std::string name = path.filename().string();
  std::error_code error;
  if (!fs::is_regular_file(path, error)) throw RequestError("run", "has no " + name, {}, 404);
  if (fs::file_size(path, error) > kMaxResultsBytes) throw RequestError("run", "has a " + name + " that is too large");
  return read_json(path);
}

std::string results_of(const fs::path& path) {
  const Json results = read_answer(path);
  if (!results.is_object() || !results.contains("tasks") || !results["tasks"].is_object())
    throw RequestError("run", "has a results.json that hone eval has not written");
  Json model;
  if (results.contains("settings") && results["settings"].is_object())
    model = results["settings"].value("model_name_or_path", Json());
  return json_text({{"model", std::move(model)}, {"tasks", results["tasks"]}});
}

std::string profile_of(const fs::path& path) {
  const Json summary = read_answer(path);
  if (!summary.is_object() || (!summary.contains("kernels") && !summary.contains("phases")))
    throw RequestError("run", "has a kernel_summary.json that hone profile has not written");
  Json shown = Json::object();
  for (const auto& [name, value] : summary.items()) {
    if (value.is_number() || value.is_object()) shown[name] = value;
    if (value.is_string()) shown[name] = cut(value.get<std::string>());
    if (!value.is_array()) continue;
    shown[name] = Json::array();
    for (const Json& row : value) {
      if (row.is_object() && shown[name].size() < kMaxShownRows) shown[name].push_back(row);
    }
  }
  return json_text(shown);
}

std::string body_of(const fs::path& root, std::string_view path, const QueryParameters& query) {
  if (path == "/runs") return list_of_runs(root);
  const std::string id = query.text("run");
  if (path == "/runs/metrics") return rows_of(run_file(root, id, "metrics.jsonl"), query, metrics_row, 4000);
  if (path == "/runs/results") return results_of(run_file(root, id, "results.json"));
  if (path == "/runs/profile") return profile_of(run_file(root, id, "kernel_summary.json"));
  if (path == "/runs/samples") {
    const auto most = static_cast<std::size_t>(query.integer("count", 100, 1, 500));
    return rows_of(run_file(root, id, "samples.jsonl"), query, sample_row, most);
  }
  if (path == "/runs/completions") {
    const std::string file = query.text("file");
    if (!is_completions_name(file)) throw RequestError("file", text_of("there is no file \"", file, "\""), {}, 404);
    const auto most = static_cast<std::size_t>(query.integer("count", 100, 1, 500));
    return rows_of(run_file(root, id, "completions/" + file + ".jsonl"), query, completion_row, most);
  }
  throw RequestError({}, text_of("there is no GET ", path), {}, 404);
}

}  // namespace

ServerResponse answer_runs(const fs::path& root, const ServerRequest& request) {
  try {
    return {.status = 200,
            .body = body_of(root, request.path(), QueryParameters(request.target)),
            .headers = {{"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-store"}}};
  } catch (const RequestError&) {
    throw;
  } catch (const Error& error) {
    throw RequestError({}, error.what(), {}, 404);  // a file that is not there, or not any more
  }
}

}  // namespace hone
