#include "emulated_device.h"

#include <cstring>
#include <new>

#include "base/error.h"

namespace inferno::test {

std::byte* EmulatedDevice::allocate(size_t bytes) {
  std::unique_ptr<std::byte, Free> made(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{16})));
  std::memset(made.get(), 0, bytes);
  std::byte* data = made.get();
  memory_[data] = std::move(made);
  return data;
}

void EmulatedDevice::release(void* data) noexcept {
  memory_.erase(data);
}

void EmulatedDevice::prepare(const metal::KernelId& kernel) {
  if (!emulator::has_kernel(kernel.name())) fail("no kernel {}", kernel.name());
}

void EmulatedDevice::dispatch(const metal::Dispatch& what) {
  prepare(what.kernel);
  Encoded& encoded = encoded_.emplace_back();
  encoded.what = {.kernel = what.kernel.name(),
                  .groups = {what.groups.x, what.groups.y, what.groups.z},
                  .threads = {what.threads},
                  .order = order_};
  if (what.kernel.kernel == without_barrier_) encoded.what.skipped_barrier = skipped_barrier_;
  if (what.kernel.has_constants()) encoded.what.constants = what.kernel.constants;
  encoded.args.assign(what.args.begin(), what.args.end());
  for (const metal::Binding& binding : what.buffers) encoded.buffers.push_back(binding.data);
  ++dispatches_;
}

void EmulatedDevice::barrier() {
  done_.push_back(std::move(encoded_));
  encoded_.clear();
  ++barriers_;
}

void EmulatedDevice::wait() {
  done_.push_back(std::move(encoded_));
  encoded_.clear();
  std::vector<std::vector<Encoded>> all;
  all.swap(done_);
  for (std::vector<Encoded>& part : all) {
    for (auto encoded = part.rbegin(); encoded != part.rend(); ++encoded) {
      emulator::Buffers buffers{{0, encoded->args.data()}};
      for (size_t i = 0; i < encoded->buffers.size(); ++i) {
        buffers[static_cast<int>(i) + 1] = const_cast<void*>(encoded->buffers[i]);
      }
      emulator::dispatch(encoded->what, buffers);
    }
  }
}

}  // namespace inferno::test
