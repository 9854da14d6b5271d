/* A Triton backend that does nothing: what remains is the cost of Triton itself.
 *
 * The model "echo" answers with its first input, byte for byte, under the name "y": so bodies can be
 * compared in both directions. Every other model answers with y = [[1, 2, 3, 4]], FP32.
 *
 * The wheel ships no headers, so the few functions of Triton's backend API (tritonbackend.h, 1.x) that
 * are used here are declared by hand; all of them answer NULL when they have succeeded. */
#include <stdint.h>
#include <string.h>

typedef struct Error Error;
typedef struct Instance Instance;
typedef struct Model Model;
typedef struct Request Request;
typedef struct Response Response;
typedef struct Input Input;
typedef struct Output Output;

extern Error *TRITONBACKEND_ModelInstanceModel(Instance *, Model **);
extern Error *TRITONBACKEND_ModelName(Model *, const char **);
extern Error *TRITONBACKEND_RequestInputByIndex(Request *, uint32_t, Input **);
extern Error *TRITONBACKEND_InputProperties(Input *, const char **name, int *type, const int64_t **shape,
                                            uint32_t *dimensions, uint64_t *bytes, uint32_t *buffers);
extern Error *TRITONBACKEND_InputBuffer(Input *, uint32_t, const void **, uint64_t *bytes, int *memory,
                                        int64_t *memory_id);
extern Error *TRITONBACKEND_ResponseNew(Response **, Request *);
extern Error *TRITONBACKEND_ResponseOutput(Response *, Output **, const char *name, int type,
                                           const int64_t *shape, uint32_t dimensions);
extern Error *TRITONBACKEND_OutputBuffer(Output *, void **, uint64_t bytes, int *memory, int64_t *memory_id);
extern Error *TRITONBACKEND_ResponseSend(Response *, uint32_t flags, Error *);
extern Error *TRITONBACKEND_RequestRelease(Request *, uint32_t flags);

enum { FP32 = 11, CPU_MEMORY = 0, FINAL = 1, WHOLE = 1 };

static void *output(Response *response, int type, const int64_t *shape, uint32_t dimensions, uint64_t bytes)
{
    Output *made = NULL;
    void *room = NULL;
    int memory = CPU_MEMORY;
    int64_t memory_id = 0;
    if (TRITONBACKEND_ResponseOutput(response, &made, "y", type, shape, dimensions) != NULL)
        return NULL;
    TRITONBACKEND_OutputBuffer(made, &room, bytes, &memory, &memory_id);
    return room;
}

static void answer_constant(Response *response)
{
    static const float values[4] = {1, 2, 3, 4};
    static const int64_t shape[2] = {1, 4};
    void *room = output(response, FP32, shape, 2, sizeof values);
    if (room != NULL)
        memcpy(room, values, sizeof values);
}

static void answer_echo(Response *response, Request *request)
{
    Input *input = NULL;
    const char *name = NULL;
    const int64_t *shape = NULL;
    uint32_t dimensions = 0, buffers = 0;
    uint64_t bytes = 0;
    int type = 0;
    TRITONBACKEND_RequestInputByIndex(request, 0, &input);
    TRITONBACKEND_InputProperties(input, &name, &type, &shape, &dimensions, &bytes, &buffers);
    char *room = output(response, type, shape, dimensions, bytes);
    for (uint32_t number = 0; room != NULL && number < buffers; number++) {
        const void *piece = NULL;
        uint64_t length = 0;
        int memory = CPU_MEMORY;
        int64_t memory_id = 0;
        TRITONBACKEND_InputBuffer(input, number, &piece, &length, &memory, &memory_id);
        memcpy(room, piece, length);
        room += length;
    }
}

Error *TRITONBACKEND_ModelInstanceExecute(Instance *instance, Request **requests, const uint32_t count)
{
    Model *model = NULL;
    const char *name = "";
    TRITONBACKEND_ModelInstanceModel(instance, &model);
    TRITONBACKEND_ModelName(model, &name);
    const int echo = strcmp(name, "echo") == 0;
    for (uint32_t number = 0; number < count; number++) {
        Response *response = NULL;
        TRITONBACKEND_ResponseNew(&response, requests[number]);
        if (echo)
            answer_echo(response, requests[number]);
        else
            answer_constant(response);
        TRITONBACKEND_ResponseSend(response, FINAL, NULL);
        TRITONBACKEND_RequestRelease(requests[number], WHOLE);
    }
    return NULL;
}
