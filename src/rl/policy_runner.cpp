#include "rl/policy_runner.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "backend/collective.h"
#include "data/micro_batches.h"

namespace hone {
namespace {

// Copies the rows of a sample from `from`, in which it starts at row `first`, into `to`, [tokens] of the step.
void copy_rows(std::span<const float> from, std::size_t first, std::span<float> to) {
  std::ranges::copy(from.subspan(first, to.size()), to.begin());
}

}  // namespace

void PolicyTotals::add_ranks(const Job& job) {
  if (job.size() == 1) return;
  std::array<double, 4> sums{loss, flops, padding.rows, padding.tokens};
  job.sum(sums);
  loss = sums[0];
  flops = sums[1];
  padding = {.rows = sums[2], .tokens = sums[3]};
  metrics.add_ranks(job);
  figures.add_ranks(job);
}

PolicyRunner::PolicyRunner(const GrpoRun& run, Workspace& workspace)
    : run_(run),
      workspace_(workspace),
      limits_(micro_batch_shape(sizes_of(run), run.options).limits),
      loss_(policy_loss_options(run.options, run.batch)) {}

std::vector<float> PolicyRunner::target_values(const char* name, const PolicyBatch& step,
                                               std::string_view output) const {
  const SizedExecutables programs(workspace_, name);
  std::vector<float> values(step.batch.tokens.size());
  std::size_t begin = 0;
  std::size_t token = 0;
  for (const std::size_t end : micro_batch_ends(step)) {
    const HostBatch part = documents_of(step.batch, begin, end);
    Executable& program = programs.holding(part.token_count());
    feed(program, part);
    program.set<std::int32_t>("targets", part.targets);
    program.run();
    program.get<float>(output, std::span(values).subspan(token, part.tokens.size()));
    check_operations();  // before the values are used
    token += part.tokens.size();
    begin = end;
  }
  return values;
}

std::vector<std::size_t> PolicyRunner::micro_batch_ends(const PolicyBatch& batch) const {
  const std::vector<std::int32_t>& starts = batch.batch.cu_seqlens;
  std::vector<BatchLimits> sizes;
  for (std::size_t s = 0; s + 1 < starts.size(); ++s) sizes.push_back({starts[s + 1] - starts[s], 1});
  return cut_micro_batches(sizes, limits_);
}

PolicyTotals PolicyRunner::train(const PolicyBatch& step, const std::vector<bool>& fresh) const {
  PolicyTotals totals(loss_, workspace_.program(kPolicyProgram));
  TokenValues values(step.batch.tokens.size(), loss_.beta != 0);
  const GradientSplit split = split_by_gradient(step, loss_.beta != 0 || totals.figures.has_losses());
  run(kPolicyProgram, step, split.with_gradient, totals, values);
  run(kPolicyEvaluationProgram, step, split.without_gradient, totals, values);
  add_metrics(step, fresh, values, totals);
  return totals;
}

void PolicyRunner::prepare() const {
  const PolicySample sample{.prompt = {0}, .completion = {0}, .logps = {0}};
  PolicyBatch batch = make_policy_batch({&sample, 1});
  if (loss_.beta != 0) batch.ref_logps.assign(batch.batch.tokens.size(), 0);
  PolicyTotals totals(loss_, workspace_.program(kPolicyProgram));
  TokenValues values(batch.batch.tokens.size(), loss_.beta != 0);
  for (Executable* program : SizedExecutables(workspace_, kPolicyProgram).all())
    run_micro_batch(*program, batch, 0, totals, values);
}

PolicyTotals PolicyRunner::evaluate(const PolicyBatch& step) const {
  PolicyTotals totals(loss_, workspace_.program(kPolicyEvaluationProgram));
  TokenValues values(step.batch.tokens.size(), loss_.beta != 0);
  std::vector<std::size_t> all(static_cast<std::size_t>(step.batch.document_count()));
  std::iota(all.begin(), all.end(), std::size_t{0});
  run(kPolicyEvaluationProgram, step, all, totals, values);
  add_metrics(step, {}, values, totals);
  return totals;
}

void PolicyRunner::run(const char* name, const PolicyBatch& step, std::span<const std::size_t> chosen,
                       PolicyTotals& totals, TokenValues& values) const {
  if (chosen.empty()) return;
  const SizedExecutables programs(workspace_, name);
  const PolicyBatch part = samples_of(step, chosen);
  TokenValues computed(part.batch.tokens.size(), loss_.beta != 0);
  std::size_t begin = 0;
  for (const std::size_t end : micro_batch_ends(part)) {
    const PolicyBatch micro_batch = samples_of(part, begin, end);
    run_micro_batch(programs.holding(micro_batch.batch.token_count()), micro_batch,
                    static_cast<std::size_t>(part.batch.cu_seqlens[begin]), totals, computed);
    begin = end;
  }
  totals.flops += work_of(programs.largest().program(), limits_.tokens).flops(part.batch);
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    const auto from = static_cast<std::size_t>(part.batch.cu_seqlens[s]);
    const auto to = static_cast<std::size_t>(step.batch.cu_seqlens[chosen[s]]);
    const auto rows = static_cast<std::size_t>(part.batch.cu_seqlens[s + 1]) - from;
    copy_rows(computed.logps, from, std::span(values.logps).subspan(to, rows));
    copy_rows(computed.entropies, from, std::span(values.entropies).subspan(to, rows));
    if (loss_.beta != 0) copy_rows(computed.kls, from, std::span(values.kls).subspan(to, rows));
  }
}

void PolicyRunner::run_micro_batch(Executable& program, const PolicyBatch& batch, std::size_t first,
                                   PolicyTotals& totals, TokenValues& values) const {
  feed(program, batch.batch);
  program.set<std::int32_t>("targets", batch.batch.targets);
  program.set<float>("loss_weights", batch.weights);
  program.set<float>("advantages", batch.loss_advantages);
  if (loss_.old_logps) program.set<float>("old_logp", batch.old_logps);
  if (loss_.beta != 0) program.set<float>("ref_logp", batch.ref_logps);
  program.run();
  const std::size_t tokens = batch.batch.tokens.size();
  float loss = 0;
  program.get<float>("loss", {&loss, 1});
  program.get<float>("logp", std::span(values.logps).subspan(first, tokens));
  program.get<float>("entropy", std::span(values.entropies).subspan(first, tokens));
  if (loss_.beta != 0) program.get<float>("kl", std::span(values.kls).subspan(first, tokens));
  check_operations();  // before the values are used
  totals.loss += static_cast<double>(loss);
  totals.padding.tokens += static_cast<double>(tokens);
  totals.padding.rows += static_cast<double>(SizedExecutables::capacity_of(program));
  totals.figures.read(program, static_cast<std::int64_t>(tokens));
}

void PolicyRunner::add_metrics(const PolicyBatch& step, const std::vector<bool>& fresh, const TokenValues& values,
                               PolicyTotals& totals) const {
  const auto size = static_cast<std::size_t>(run_.batch.size);
  const auto samples = static_cast<std::size_t>(step.batch.document_count());
  for (std::size_t first = 0; first < samples; first += size) {
    const PolicyBatch batch = samples_of(step, first, std::min(first + size, samples));
    const auto part = [&](const std::vector<float>& of) {
      const std::span<const float> all(of);
      return of.empty()
                 ? all
                 : all.subspan(static_cast<std::size_t>(step.batch.cu_seqlens[first]), batch.batch.tokens.size());
    };
    const bool compare = !fresh.empty() && fresh[first / size];
    totals.metrics.add(batch, part(values.logps), part(values.entropies), part(values.kls), compare);
  }
}

}  // namespace hone
