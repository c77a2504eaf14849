#include "fake_metal.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <vector>

#include "emulator.h"

namespace fake {
namespace {

constexpr size_t kMaxBuffers = 31;
constexpr size_t kMaxInlineBytes = 4096;

struct Size {  // MTLSize
  size_t width, height, depth;
};

size_t allocated = 0;

struct ErrorObject final : Object {
  static constexpr const char* kKind = "NSError";
  explicit ErrorObject(std::string words) : Object(kKind), text(std::move(words)) {}
  std::string text;
};

struct Device final : Object {
  static constexpr const char* kKind = "MTLDevice";
  explicit Device(const DeviceKind& like) : Object(kKind), is(like) {}
  [[nodiscard]] bool knows(std::string_view selector) const override {
    return is.residency || selector != "newResidencySetWithDescriptor:error:";
  }
  DeviceKind is;
};

struct CompileOptions final : Object {
  static constexpr const char* kKind = "MTLCompileOptions";
  CompileOptions() : Object(kKind) {}
  bool fast_math = true;
};

struct Library final : Object {
  static constexpr const char* kKind = "MTLLibrary";
  Library() : Object(kKind) {}
};

struct ConstantValues final : Object {
  static constexpr const char* kKind = "MTLFunctionConstantValues";
  ConstantValues() : Object(kKind) {}
  uint32_t bits = 0;
};

struct Function final : Object {
  static constexpr const char* kKind = "MTLFunction";
  explicit Function(std::string of, std::optional<uint32_t> with = {})
      : Object(kKind), kernel(std::move(of)), constants(with) {}
  std::string kernel;
  std::optional<uint32_t> constants;
};

struct Pipeline final : Object {
  static constexpr const char* kKind = "MTLComputePipelineState";
  Pipeline(const Function& of, const DeviceKind& on)
      : Object(kKind), kernel(of.kernel), constants(of.constants), device(on) {}
  std::string kernel;
  std::optional<uint32_t> constants;
  DeviceKind device;
};

struct BufferObject final : Object {
  static constexpr const char* kKind = "MTLBuffer";
  explicit BufferObject(size_t length)
      : Object(kKind), data(static_cast<char*>(::operator new(length, std::align_val_t{16}))), bytes(length) {
    std::memset(data, 0xff, bytes);  // NaN
    allocated += bytes;
  }
  void dispose() override {
    allocated -= bytes;
    ::operator delete(data, std::align_val_t{16});
    data = nullptr;
  }
  char* data;
  size_t bytes;
};

struct Bound {
  BufferObject* buffer = nullptr;
  size_t offset = 0;
  std::vector<char> bytes;  // instead of a buffer
};
struct Work {
  std::string kernel;
  std::optional<uint32_t> constants;
  std::map<size_t, Bound> bound;
  Size groups, threads;
};

struct ResidencyDescriptor final : Object {
  static constexpr const char* kKind = "MTLResidencySetDescriptor";
  ResidencyDescriptor() : Object(kKind) {}
};
struct ResidencySet final : Object {
  static constexpr const char* kKind = "MTLResidencySet";
  ResidencySet() : Object(kKind) {}
  std::set<BufferObject*> next;  // after the commit
  std::set<BufferObject*> committed;
  bool requested = false;  // since the last commit that added something
};

struct CommandBuffer;
struct Queue final : Object {
  static constexpr const char* kKind = "MTLCommandQueue";
  explicit Queue(const DeviceKind& on) : Object(kKind), device(on) {}
  DeviceKind device;
  std::vector<CommandBuffer*> committed;  // and not run
  ResidencySet* resident = nullptr;
};

struct CommandBuffer final : Object {
  static constexpr const char* kKind = "MTLCommandBuffer";
  explicit CommandBuffer(Queue* of) : Object(kKind), queue(of) {}
  void run();

  Queue* queue;
  std::vector<std::vector<Work>> parts;  // between barriers
  bool encoding = false;
  bool committed = false;
  bool done = false;
};

struct Encoder final : Object {
  static constexpr const char* kKind = "MTLComputeCommandEncoder";
  explicit Encoder(CommandBuffer* of) : Object(kKind), commands(of) { commands->parts.emplace_back(); }
  void open() const { require(!ended, "encoding after endEncoding"); }

  CommandBuffer* commands;
  Pipeline* pipeline = nullptr;
  std::map<size_t, Bound> bound;
  bool ended = false;
};

void run_work(const Work& work, const ResidencySet* resident) {
  emulator::Buffers buffers;
  for (const auto& [index, bound] : work.bound) {
    const std::string which = "buffer " + std::to_string(index) + " of " + work.kernel;
    if (bound.buffer == nullptr) {
      buffers[static_cast<int>(index)] = const_cast<char*>(bound.bytes.data());
      continue;
    }
    require(bound.buffer->references > 0, "use after release: " + which + ", before its commands ran");
    if (resident != nullptr) {
      require(resident->committed.contains(bound.buffer), which + " is not in the residency set");
      require(resident->requested, "residency was not requested");
    }
    buffers[static_cast<int>(index)] = bound.buffer->data + bound.offset;
  }
  const auto size = [](const Size& s) {
    return emulator::Size{static_cast<uint32_t>(s.width), static_cast<uint32_t>(s.height),
                          static_cast<uint32_t>(s.depth)};
  };
  emulator::dispatch(
      {.kernel = work.kernel, .groups = size(work.groups), .threads = size(work.threads), .constants = work.constants},
      buffers);
}

void CommandBuffer::run() {
  if (done) return;
  done = true;
  for (const std::vector<Work>& part : parts) {
    for (auto work = part.rbegin(); work != part.rend(); ++work) run_work(*work, queue->resident);
  }
}

// ---- the messages

Object* new_library(Device* self, SEL /*s*/, String* source, CompileOptions* options, Object** error) {
  require(!options->fast_math, "kernels are compiled with fast math");
  if (self->is.compiles) {
    require(emulator::has_source(source->text), "the source is not the one that was translated");
    return new Library;
  }
  *error = autoreleased<ErrorObject>("program_source:7:1: error: expected ';'\nmore lines");
  return nullptr;
}

Object* new_buffer(Device* self, SEL /*s*/, size_t length, size_t options) {
  require(length > 0, "a buffer of no bytes");
  require(options == 0, "a buffer that is not shared");
  return allocated + length > self->is.memory ? nullptr : new BufferObject(length);
}

Object* new_pipeline(Device* self, SEL /*s*/, Function* function, Object** /*error*/) {
  require(function != nullptr, "a pipeline of no function");
  return new Pipeline(*function, self->is);
}

Object* new_function_with_constants(Library* /*self*/, SEL /*s*/, String* name, ConstantValues* values,
                                    Object** /*error*/) {
  return emulator::has_kernel(name->text) ? new Function(name->text, values->bits) : nullptr;
}

void set_constant(ConstantValues* self, SEL /*s*/, const bool* value, size_t type, size_t index) {
  constexpr size_t kBool = 53;
  require(type == kBool && index < 32, "a function constant that is no bool");
  self->bits |= *value ? 1U << index : 0U;
}

void install_residency() {
  add_class(ResidencyDescriptor::kKind, []() -> Object* { return new ResidencyDescriptor; });
  method(Device::kKind, "newResidencySetWithDescriptor:error:",
         [](Device*, SEL, ResidencyDescriptor*, Object**) -> Object* { return new ResidencySet; });
  method(Queue::kKind, "addResidencySet:", [](Queue* self, SEL, ResidencySet* set) { self->resident = set; });
  constexpr const char* kKind = ResidencySet::kKind;
  method(kKind, "addAllocation:", [](ResidencySet* self, SEL, BufferObject* buffer) { self->next.insert(buffer); });
  method(kKind, "removeAllocation:", [](ResidencySet* self, SEL, BufferObject* buffer) {
    require(self->next.erase(buffer) == 1, "a buffer that is not in the residency set is taken out of it");
  });
  method(kKind, "commit", [](ResidencySet* self, SEL) {
    if (self->next.size() > self->committed.size()) self->requested = false;
    self->committed = self->next;
  });
  method(kKind, "requestResidency", [](ResidencySet* self, SEL) { self->requested = true; });
}

void install_device() {
  constexpr const char* kKind = Device::kKind;
  method(kKind, "name", [](Device*, SEL) { return autoreleased<String>("Emulated GPU"); });
  method(kKind, "supportsFamily:", [](Device* self, SEL, intptr_t family) {
    constexpr intptr_t kApple = 1000;
    return family > kApple && family <= kApple + self->is.family;
  });
  method(kKind, "hasUnifiedMemory", [](Device*, SEL) { return true; });
  method(kKind, "recommendedMaxWorkingSetSize", [](Device* self, SEL) -> uint64_t { return self->is.memory; });
  method(kKind, "currentAllocatedSize", [](Device*, SEL) { return allocated; });
  method(kKind, "newCommandQueue", [](Device* self, SEL) -> Object* { return new Queue(self->is); });
  add_method(kKind, "newLibraryWithSource:options:error:", reinterpret_cast<void*>(new_library));
  add_method(kKind, "newBufferWithLength:options:", reinterpret_cast<void*>(new_buffer));
  add_method(kKind, "newComputePipelineStateWithFunction:error:", reinterpret_cast<void*>(new_pipeline));
}

void install_objects() {
  add_class(CompileOptions::kKind, []() -> Object* { return new CompileOptions; });
  method(CompileOptions::kKind, "setLanguageVersion:", [](CompileOptions*, SEL, size_t) {});
  method(CompileOptions::kKind,
         "setFastMathEnabled:", [](CompileOptions* self, SEL, bool on) { self->fast_math = on; });
  method(ErrorObject::kKind, "localizedDescription",
         [](ErrorObject* self, SEL) { return autoreleased<String>(self->text); });
  method(Library::kKind, "newFunctionWithName:", [](Library*, SEL, String* name) -> Object* {
    return emulator::has_kernel(name->text) ? new Function(name->text) : nullptr;
  });
  add_class(ConstantValues::kKind, []() -> Object* { return new ConstantValues; });
  add_method(ConstantValues::kKind, "setConstantValue:type:atIndex:", reinterpret_cast<void*>(set_constant));
  add_method(Library::kKind,
             "newFunctionWithName:constantValues:error:", reinterpret_cast<void*>(new_function_with_constants));
  method(Pipeline::kKind, "threadExecutionWidth", [](Pipeline* self, SEL) { return self->device.simd_width; });
  method(Pipeline::kKind, "maxTotalThreadsPerThreadgroup",
         [](Pipeline* self, SEL) { return self->device.max_threads; });
  method(BufferObject::kKind, "contents", [](BufferObject* self, SEL) -> void* { return self->data; });
  method(BufferObject::kKind, "length", [](BufferObject* self, SEL) { return self->bytes; });
}

Object* new_encoder(CommandBuffer* self, SEL /*s*/, size_t dispatch_type) {
  constexpr size_t kConcurrent = 1;
  require(dispatch_type == kConcurrent, "an encoder that is not concurrent");
  require(!self->committed, "encoding after commit");
  require(!self->encoding, "a second encoder while one is open");
  self->encoding = true;
  return autoreleased<Encoder>(self);
}

void commit(CommandBuffer* self, SEL /*s*/) {
  require(!self->committed, "double commit");
  require(!self->encoding, "commit without endEncoding");
  self->committed = true;
  retain(self);  // the queue keeps it until it has run
  self->queue->committed.push_back(self);
}

void wait_until_completed(CommandBuffer* self, SEL /*s*/) {
  require(self->committed, "wait before commit");
  std::vector<CommandBuffer*>& waiting = self->queue->committed;
  while (!self->done) {
    CommandBuffer* next = waiting.front();
    waiting.erase(waiting.begin());
    next->run();
    release(next);
  }
}

void install_commands() {
  method(Queue::kKind, "commandBufferWithUnretainedReferences",
         [](Queue* self, SEL) -> Object* { return autoreleased<CommandBuffer>(self); });
  constexpr const char* kKind = CommandBuffer::kKind;
  add_method(kKind, "computeCommandEncoderWithDispatchType:", reinterpret_cast<void*>(new_encoder));
  add_method(kKind, "commit", reinterpret_cast<void*>(commit));
  add_method(kKind, "waitUntilCompleted", reinterpret_cast<void*>(wait_until_completed));
  method(kKind, "status", [](CommandBuffer* self, SEL) -> size_t {
    constexpr size_t kCompleted = 4;
    constexpr size_t kError = 5;
    return self->queue->device.fails ? kError : self->done ? kCompleted : 0;
  });
  method(kKind, "error", [](CommandBuffer*, SEL) -> Object* { return autoreleased<ErrorObject>("out of breath"); });
  method(kKind, "GPUStartTime", [](CommandBuffer*, SEL) { return 1.0; });
  method(kKind, "GPUEndTime", [](CommandBuffer*, SEL) { return 1.000001; });
}

void set_buffer(Encoder* self, SEL /*s*/, BufferObject* buffer, size_t offset, size_t index) {
  self->open();
  const std::string which = "buffer " + std::to_string(index);
  require(index < kMaxBuffers, which + ": a device has 31");
  require(buffer != nullptr, which + " is null");
  require(buffer->references > 0, "use after release: " + which);
  require(offset < buffer->bytes, which + ": offset outside of the buffer");
  require(offset % 4 == 0, which + ": offset is not a multiple of 4");
  self->bound[index] = {.buffer = buffer, .offset = offset, .bytes = {}};
}

void set_bytes(Encoder* self, SEL /*s*/, const char* bytes, size_t length, size_t index) {
  self->open();
  require(index < kMaxBuffers && length > 0, "setBytes: no bytes, or no such index");
  require(length <= kMaxInlineBytes, "setBytes: more than 4 KiB");
  self->bound[index] = {.buffer = nullptr, .offset = 0, .bytes = {bytes, bytes + length}};
}

void dispatch_groups(Encoder* self, SEL /*s*/, Size groups, Size threads) {
  self->open();
  require(self->pipeline != nullptr, "dispatch without a pipeline");
  const std::string& kernel = self->pipeline->kernel;
  require(groups.width > 0 && groups.height > 0 && groups.depth > 0, kernel + ": an empty grid");
  require(threads.width * threads.height * threads.depth <= self->pipeline->device.max_threads,
          kernel + ": too many threads in a threadgroup");
  for (const int index : emulator::buffers_of(kernel)) {
    require(self->bound.contains(static_cast<size_t>(index)),
            kernel + ": buffer " + std::to_string(index) + " is not bound");
  }
  self->commands->parts.back().push_back({kernel, self->pipeline->constants, self->bound, groups, threads});
  self->bound.clear();  // stricter than Metal: what a kernel before it bound is no argument of this one
}

void install_encoder() {
  constexpr const char* kKind = Encoder::kKind;
  method(kKind, "setComputePipelineState:", [](Encoder* self, SEL, Pipeline* pipeline) {
    self->open();
    require(pipeline != nullptr && pipeline->references > 0, "a pipeline that is none");
    self->pipeline = pipeline;
  });
  add_method(kKind, "setBuffer:offset:atIndex:", reinterpret_cast<void*>(set_buffer));
  add_method(kKind, "setBytes:length:atIndex:", reinterpret_cast<void*>(set_bytes));
  add_method(kKind, "dispatchThreadgroups:threadsPerThreadgroup:", reinterpret_cast<void*>(dispatch_groups));
  method(kKind, "memoryBarrierWithScope:", [](Encoder* self, SEL, size_t scope) {
    constexpr size_t kBuffers = 1;
    self->open();
    require(scope == kBuffers, "a barrier that is not for buffers");
    self->commands->parts.emplace_back();
  });
  method(kKind, "endEncoding", [](Encoder* self, SEL) {
    self->open();
    self->ended = true;
    self->commands->encoding = false;
  });
}

const bool kInstalled = [] {
  install_device();
  install_objects();
  install_residency();
  install_commands();
  install_encoder();
  return true;
}();

}  // namespace

DeviceKind& next_device() {
  static DeviceKind next;
  return next;
}

}  // namespace fake

extern "C" {

void* MTLCreateSystemDefaultDevice() {
  return fake::next_device().exists ? new fake::Device(fake::next_device()) : nullptr;
}
// metal-cpp names them; nobody calls them.
void* MTLCopyAllDevices() {
  return nullptr;
}
void* MTLCopyAllDevicesWithObserver(void** /*observer*/, void* /*block*/) {
  return nullptr;
}
void MTLRemoveDeviceObserver(const void* /*observer*/) {}
void* _NSConcreteStackBlock[32];
void _Block_object_assign(void* /*to*/, const void* /*object*/, int /*flags*/) {}
void _Block_object_dispose(const void* /*object*/, int /*flags*/) {}
}
