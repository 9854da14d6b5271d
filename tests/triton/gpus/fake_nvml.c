/* The functions of NVML that are asked here, for four GPUs of which one has fallen off the bus.
 *
 * The forms are those of NVIDIA's published nvml.h: 0 is success, 3 not supported, 6 not found,
 * 15 a GPU that is lost. GPU 1 is in MIG mode, with slices at 0 and 2. GPU 3 shares its memory with
 * the processor and tells none of its own.
 */
#include <stdio.h>
#include <string.h>

typedef unsigned int u32;
typedef struct { u32 gpu, memory; } Rates;
typedef struct { unsigned long long total, free, used; } Memory;

static long number(void *device) { return (long)device; }

int nvmlInitWithFlags(u32 flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "Not Supported"; }
int nvmlDeviceGetCount_v2(u32 *count) { *count = 4; return 0; }

int nvmlDeviceGetHandleByIndex_v2(u32 index, void **device) {
    if (index == 2) return 15;
    *device = (void *)(long)(index + 100);
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, u32 size) {
    snprintf(text, size, "GPU-%ld", number(device) - 100);
    return 0;
}

int nvmlDeviceGetName(void *device, char *text, u32 size) {
    if (number(device) < 200) snprintf(text, size, "NVIDIA A100-SXM4-40GB");
    else snprintf(text, size, "NVIDIA A100-SXM4-40GB MIG %s", number(device) == 200 ? "3g.20gb" : "2g.10gb");
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, Rates *rates) {
    if (number(device) == 101 || number(device) >= 200) return 3;
    rates->gpu = number(device) == 100 ? 42 : 7;
    rates->memory = 11;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    if (number(device) == 103) return 3;
    memory->total = number(device) >= 200 ? 10ULL << 30 : 40ULL << 30;
    memory->used = 3ULL << 30;
    memory->free = memory->total - memory->used;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, u32 *milliwatts) {
    if (number(device) >= 200) return 3;
    *milliwatts = 351204;
    return 0;
}

int nvmlDeviceGetMigMode(void *device, u32 *now, u32 *next) {
    if (number(device) == 103) return 3;
    *now = *next = number(device) == 101;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, u32 *count) { *count = 7; return 0; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, u32 index, void **slice) {
    if (index != 0 && index != 2) return 6;
    *slice = (void *)(long)(200 + index);
    return 0;
}

int nvmlDeviceGetGpuInstanceId(void *slice, u32 *id) { *id = number(slice) == 200 ? 1 : 5; return 0; }
