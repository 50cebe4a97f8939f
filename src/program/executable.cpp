#include "program/executable.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <typeinfo>
#include <utility>

#include "backend/collective.h"
#include "backend/stopwatch.h"
#include "core/error.h"
#include "program/independent_nodes.h"

namespace hone {

void Arena::reserve(std::size_t bytes) {
  HONE_ASSERT(base_ == nullptr || bytes <= bytes_, "the arena is allocated with ", bytes_, " bytes and cannot grow to ",
              bytes, " bytes");
  bytes_ = std::max(bytes_, bytes);
}

std::byte* Arena::base() {
  if (base_ == nullptr && bytes_ > 0) {
    buffer_ = Buffer(*device_, bytes_);
    base_ = buffer_.data();
  }
  return base_;
}

namespace {

// Returns true if CUDA_LAUNCH_BLOCKING=1, as in NVIDIA's tools: errors must then surface at the launch that failed.
bool is_launch_blocking() {
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  return blocking != nullptr && std::string_view(blocking) == "1";
}

}  // namespace

struct Executable::Impl {
  struct Launch {
    const Kernel* kernel = nullptr;  // null for a view
    std::vector<TensorView> inputs;
    std::vector<TensorView> outputs;
    std::span<std::byte> workspace;
  };

  Program program;
  std::shared_ptr<Arena> arena;
  Bindings bindings;
  MemoryPlan plan;
  std::shared_ptr<InputBuffer> inputs;
  std::vector<std::int64_t> counts;  // [program.counts()], values that the host sets
  std::vector<ValueId> written;      // values that nodes write, with their aliases; ascending
  std::vector<Launch> launches;      // [nodes]; empty until the first run
  bool recording = !is_launch_blocking();
  bool communicates = false;            // true if nodes are operations between the ranks of a job
  bool ran = false;                     // true after a run without recording, which loads libraries and kernels
  std::unique_ptr<Recording> recorded;  // of all launches
  // The first part of a run, [0, first_late), and the rest, for runs that begin() has begun.
  std::size_t first_late = 0;
  std::array<std::unique_ptr<Recording>, 2> recorded_parts;
  bool begun = false;
  NodeObserver* observer = nullptr;

  [[nodiscard]] std::byte* storage(ValueId id) {
    const ValueId root = program.storage_of(id);
    const Value& value = program.value(root);
    const auto bound = [&](const TensorStore* store) {
      HONE_ASSERT(store != nullptr && store->contains(value.name), "nothing is bound to ", value.name);
      HONE_ASSERT(
          store->type(value.name).bytes() == value.type.bytes() && store->type(value.name).dtype == value.type.dtype,
          value.name, " is ", to_text(value.type), ", bound to ", to_text(store->type(value.name)));
      return store->data(value.name);
    };
    switch (value.role) {
      case Role::kWeight:
        return bound(bindings.weights);
      case Role::kGradient:
        return bound(bindings.gradients);
      case Role::kState:
        return bound(value.placement == Placement::kHost ? bindings.host_states : bindings.states);
      case Role::kInput:
        return inputs->data() + inputs->layout().offset_of(value.name);
      case Role::kActivation:
        break;
    }
    return arena->base() + plan.value_offset[static_cast<std::size_t>(root)];
  }

  [[nodiscard]] bool is_constant(ValueId root) const {
    const Role role = program.value(root).role;
    return (role == Role::kWeight || role == Role::kInput) && !std::ranges::binary_search(written, root);
  }

  [[nodiscard]] TensorView view(ValueId id) {
    if (id == kNoValue) return {};
    const Type& type = program.value(id).type;
    TensorView view{.data = storage(id), .type = &type, .constant = is_constant(program.storage_of(id))};
    if (type.count() == Count::none) return view;
    const CountSpec* spec = program.find_count(type.count());
    if (spec->source == kNoValue) {
      const std::ptrdiff_t place = spec - program.counts().data();
      view.count = counts.data() + place;
      view.device_count = reinterpret_cast<const std::int64_t*>(inputs->data() + InputLayout::kCountsOffset) + place;
    } else {
      view.device_count = reinterpret_cast<const std::int64_t*>(storage(spec->source));
      if (device().kind() == DeviceKind::kCpu) view.count = view.device_count;
    }
    return view;
  }

  [[nodiscard]] Device& device() const { return arena->device(); }

  [[nodiscard]] KernelCall call(std::size_t index) const {
    const Launch& each = launches[index];
    return {each.inputs, each.outputs, &program.nodes()[index].attributes, each.workspace, &device()};
  }

  void launch(std::size_t index) {
    const Launch& each = launches[index];
    if (each.kernel == nullptr) return;
    const Node& node = program.nodes()[index];
    try {
      each.kernel->run(call(index));
      if (observer == nullptr && (!recording || !ran)) device().synchronize();
    } catch (const Error& error) {
      if (typeid(error) != typeid(Error)) throw;  // the end of a job, for example, is no error of this node
      throw Error(text_of(node.op->name(), node.scope.empty() ? "" : " in ", node.scope), error.what());
    }
  }

  // Launches nodes [first, last) for a recording.
  void record_nodes(std::size_t first, std::size_t last) {
    while (first < last) {
      const Kernel* kernel = launches[first].kernel;
      if (kernel == nullptr || kernel->run_together == nullptr) {
        launch(first++);
        continue;
      }
      const std::size_t end = std::min(end_of_independent_nodes(program, first), last);
      std::vector<KernelCall> calls;
      for (std::size_t i = first; i < end; ++i) calls.push_back(call(i));
      kernel->run_together(calls);
      first = end;
    }
  }

  // Launches nodes [first, last), which `recording_of_them` holds if they have been recorded.
  void launch_nodes(std::size_t first, std::size_t last, std::unique_ptr<Recording>& recording_of_them) {
    if (recording && ran && !recording_of_them) recording_of_them = device().record([&] { record_nodes(first, last); });
    if (recording_of_them) {
      recording_of_them->launch();
    } else {
      for (std::size_t i = first; i < last; ++i) launch(i);
    }
  }

  void forget_recordings() {
    recorded.reset();
    for (std::unique_ptr<Recording>& part : recorded_parts) part.reset();
  }

  // Asserts that no run of another executable has begun that reads the same inputs.
  void expect_inputs() const {
    HONE_ASSERT(begun || !inputs->begun(), "a run of another program has begun with these inputs");
  }

  // Copies what the host has set to the device, before nodes are launched.
  void upload_inputs() {
    expect_inputs();
    if (launches.empty()) prepare();
    if (communicates) expect_operations();
    // Kernels read the counts in device memory, so recorded launches see new values without a new recording.
    inputs->set(InputLayout::kCountsOffset, std::as_bytes(std::span(counts)));
    inputs->upload();
  }

  // Returns the number of nodes before the first one that reads an input.
  [[nodiscard]] std::size_t nodes_before(std::string_view input) const {
    const ValueId id = program.find(Role::kInput, input);
    HONE_ASSERT(id != kNoValue, "the program has no input ", input);
    const auto reads = [&](const Node& node) {
      return std::ranges::any_of(node.inputs,
                                 [&](ValueId each) { return each != kNoValue && program.storage_of(each) == id; });
    };
    const auto first = std::ranges::find_if(program.nodes(), reads);
    HONE_ASSERT(first != program.nodes().end(), "no node reads ", input);
    return static_cast<std::size_t>(first - program.nodes().begin());
  }

  void run_observed() {
    const std::unique_ptr<Stopwatch> stopwatch = make_stopwatch(device());
    observer->begin_run(*stopwatch);
    for (std::size_t i = 0; i < launches.size(); ++i) {
      observer->before_node(i, *stopwatch);
      launch(i);
      observer->after_node(i, *stopwatch);
    }
    observer->end_run(*stopwatch);
  }

  void prepare() {
    for (std::size_t i = 0; i < program.nodes().size(); ++i) {
      const Node& node = program.nodes()[i];
      Launch launch;
      if (!node.op->is_view()) launch.kernel = &kernel_registry().get(node.op->name(), arena->device().kind());
      for (const ValueId id : node.inputs) launch.inputs.push_back(view(id));
      for (const ValueId id : node.outputs) launch.outputs.push_back(view(id));
      if (plan.workspace_bytes[i] > 0) {
        launch.workspace = {arena->base() + plan.workspace_offset[i], plan.workspace_bytes[i]};
      }
      launches.push_back(std::move(launch));
    }
  }
};

namespace {

MemoryPlan plan_for(const Program& program, const Arena& arena) { return plan_memory(program, arena.device().kind()); }

}  // namespace

Executable::Executable(const Program& program, const std::shared_ptr<Arena>& arena, const Bindings& bindings)
    : Executable(Program(program), plan_for(program, *arena), arena, bindings) {}

Executable::Executable(Program program, MemoryPlan plan, std::shared_ptr<Arena> arena, const Bindings& bindings,
                       std::shared_ptr<InputBuffer> inputs)
    : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.program = std::move(program);
  impl.arena = std::move(arena);
  impl.bindings = bindings;
  impl.plan = std::move(plan);
  impl.arena->reserve(impl.plan.arena);
  impl.inputs = std::move(inputs);
  if (impl.inputs == nullptr) {
    impl.inputs = std::make_shared<InputBuffer>(impl.device(), InputLayout(impl.program));
  }
  for (const Node& node : impl.program.nodes()) {
    impl.communicates = impl.communicates || node.op->category() == OpCategory::kCommunication;
    for (const ValueId id : node.outputs) {
      if (node.op->is_view()) continue;
      impl.written.push_back(impl.program.storage_of(id));
      HONE_ASSERT(impl.program.value(impl.written.back()).role != Role::kInput, node.op->name(),
                  " writes to an input; inputs keep what the host has set");
    }
  }
  std::ranges::sort(impl.written);
  // The default of each count is its capacity: all rows are in use.
  for (const CountSpec& spec : impl.program.counts()) impl.counts.push_back(spec.capacity);
}

Executable::~Executable() = default;
Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;

const Program& Executable::program() const { return impl_->program; }
const MemoryPlan& Executable::plan() const { return impl_->plan; }
Device& Executable::device() const { return impl_->device(); }

void Executable::set_bytes(std::string_view input, DType dtype, std::span<const std::byte> bytes) {
  const ValueId id = impl_->program.find(Role::kInput, input);
  HONE_ASSERT(id != kNoValue, "the program has no input ", input);
  const Type& type = impl_->program.value(id).type;
  HONE_ASSERT(type.dtype == dtype && bytes.size() <= type.bytes(), input, " is ", to_text(type), "; ", bytes.size(),
              " bytes of ", name_of(dtype), " were given");
  impl_->expect_inputs();
  impl_->inputs->set(impl_->inputs->layout().offset_of(input), bytes);
}

void Executable::set_count(Count count, std::int64_t value) {
  const CountSpec* spec = impl_->program.find_count(count);
  HONE_ASSERT(spec != nullptr && spec->source == kNoValue, "the program has no count ", count.name(),
              " that the host sets");
  HONE_ASSERT(value >= 0 && value <= spec->capacity, "count ", count.name(), ": ", value, " is not from 0 to ",
              spec->capacity, ", its capacity");
  impl_->counts[static_cast<std::size_t>(spec - impl_->program.counts().data())] = value;
}

std::string Executable::changes() const {
  const Impl& impl = *impl_;
  const auto counts = std::as_bytes(std::span(impl.counts));
  return std::string(reinterpret_cast<const char*>(counts.data()), counts.size()) + impl.inputs->changes();
}

void Executable::set_changes(std::string_view changes) {
  Impl& impl = *impl_;
  const auto counts = std::as_writable_bytes(std::span(impl.counts));
  HONE_ASSERT(changes.size() >= counts.size(), changes.size(), " bytes for ", impl.counts.size(), " counts");
  std::memcpy(counts.data(), changes.data(), counts.size());
  impl.expect_inputs();
  impl.inputs->add_changes(changes.substr(counts.size()));
}

void Executable::set_recording(bool recording) {
  impl_->recording = recording;
  impl_->forget_recordings();
}

void Executable::begin(std::string_view late_input) {
  Impl& impl = *impl_;
  HONE_ASSERT(!impl.begun && !impl.inputs->begun(), "a run begins before the last one has ended");
  impl.begun = true;
  impl.inputs->set_begun(true);
  // An observer sees a run as a whole.
  if (impl.observer != nullptr) return;
  const std::size_t first_late = impl.nodes_before(late_input);
  if (first_late != impl.first_late) {
    for (std::unique_ptr<Recording>& part : impl.recorded_parts) part.reset();
    impl.first_late = first_late;
  }
  impl.upload_inputs();
  impl.launch_nodes(0, first_late, impl.recorded_parts[0]);
}

void Executable::run() {
  Impl& impl = *impl_;
  impl.upload_inputs();
  const bool begun = std::exchange(impl.begun, false);
  impl.inputs->set_begun(false);
  if (impl.observer != nullptr) {
    impl.run_observed();
    return;
  }
  if (begun) {
    impl.launch_nodes(impl.first_late, impl.launches.size(), impl.recorded_parts[1]);
  } else {
    impl.launch_nodes(0, impl.launches.size(), impl.recorded);
  }
  impl.ran = true;
}

void Executable::get_bytes(std::string_view output, DType dtype, std::span<std::byte> bytes, bool wait) const {
  for (const Output& each : impl_->program.outputs()) {
    if (each.name != output) continue;
    const Type& type = impl_->program.value(each.value).type;
    HONE_ASSERT(type.dtype == dtype && bytes.size() <= type.bytes(), output, " is ", to_text(type), "; ", bytes.size(),
                " bytes of ", name_of(dtype), " were requested");
    Device& device = impl_->device();
    if (!wait) return device.download_later(bytes.data(), impl_->storage(each.value), bytes.size());
    return device.download(bytes.data(), impl_->storage(each.value), bytes.size());
  }
  throw Defect(text_of("the program has no output ", output));
}

void Executable::set_observer(NodeObserver* observer) { impl_->observer = observer; }

void Executable::rebind_weights(const TensorStore& weights) {
  impl_->bindings.weights = &weights;
  impl_->launches.clear();
  impl_->forget_recordings();
}

}  // namespace hone
