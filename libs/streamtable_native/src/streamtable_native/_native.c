/* The inner loops over librdkafka: records of a consumer's queue to columns, changed rows and outputs to a producer's queue.

   Nothing is linked: the functions are looked up in the librdkafka that the installed Kafka client has loaded, so both use
   the same library, clients and queues. Only the stable ABI of Python is used. All decisions are made in Python. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* ---- The part of librdkafka's interface that is used, as declared by its public header (ABI of versions 1 and 2). ---- */

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} rd_kafka_message_t;

enum { MSG_F_COPY = 0x2, NO_ERROR = 0 };
enum { V_END, V_TOPIC, V_RKT, V_PARTITION, V_VALUE, V_KEY, V_OPAQUE, V_MSGFLAGS, V_TIMESTAMP, V_HEADER, V_HEADERS };

#define LIBRDKAFKA(_)                                                                                                         \
    _(int, rd_kafka_version, (void))                                                                                          \
    _(int, rd_kafka_type, (const rd_kafka_t *))                                                                               \
    _(const char *, rd_kafka_err2str, (int))                                                                                  \
    _(rd_kafka_queue_t *, rd_kafka_queue_new, (rd_kafka_t *))                                                                 \
    _(void, rd_kafka_queue_destroy, (rd_kafka_queue_t *))                                                                     \
    _(rd_kafka_queue_t *, rd_kafka_queue_get_partition, (rd_kafka_t *, const char *, int32_t))                                \
    _(void, rd_kafka_queue_forward, (rd_kafka_queue_t *, rd_kafka_queue_t *))                                                 \
    _(ssize_t, rd_kafka_consume_batch_queue, (rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t))                        \
    _(void, rd_kafka_message_destroy, (rd_kafka_message_t *))                                                                 \
    _(int64_t, rd_kafka_message_timestamp, (const rd_kafka_message_t *, int *))                                               \
    _(int, rd_kafka_message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **))                                     \
    _(int, rd_kafka_header_get_all, (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))             \
    _(const char *, rd_kafka_topic_name, (const rd_kafka_topic_t *))                                                          \
    _(rd_kafka_topic_t *, rd_kafka_topic_new, (rd_kafka_t *, const char *, rd_kafka_topic_conf_t *))                          \
    _(void, rd_kafka_topic_destroy, (rd_kafka_topic_t *))                                                                     \
    _(int, rd_kafka_produce_batch, (rd_kafka_topic_t *, int32_t, int, rd_kafka_message_t *, int))                             \
    _(int, rd_kafka_producev, (rd_kafka_t *, ...))                                                                            \
    _(rd_kafka_headers_t *, rd_kafka_headers_new, (size_t))                                                                   \
    _(void, rd_kafka_headers_destroy, (rd_kafka_headers_t *))                                                                 \
    _(int, rd_kafka_header_add, (rd_kafka_headers_t *, const char *, ssize_t, const void *, ssize_t))

#define DECLARE(result, name, arguments) static result(*name) arguments;
LIBRDKAFKA(DECLARE)

static PyObject *load(PyObject *module, PyObject *argument) {
    /* The client's own extension module; a search in it includes the libraries that it was linked with. */
    PyObject *path = NULL;
    if (!PyUnicode_FSConverter(argument, &path)) return NULL;
    void *library = dlopen(PyBytes_AsString(path), RTLD_NOW | RTLD_NOLOAD);
    Py_DECREF(path);
    if (!library) return PyErr_Format(PyExc_OSError, "the Kafka client is not loaded: %s", dlerror());
#define LOOK_UP(result, name, arguments)                                                                                      \
    if (!(*(void **)&name = dlsym(library, #name))) return PyErr_Format(PyExc_OSError, "librdkafka has no function " #name);
    LIBRDKAFKA(LOOK_UP)
    return PyLong_FromLong(rd_kafka_version());
}

/* The head of the client's objects. It is private to the client: `load` is called only for versions known to have it. */
typedef struct {
    PyObject_HEAD
    rd_kafka_t *rk;
} Client;

enum { PRODUCER = 0, CONSUMER = 1 };

static rd_kafka_t *handle_of(PyObject *client, int type) {
    if (!rd_kafka_version) return PyErr_Format(PyExc_RuntimeError, "librdkafka has not been loaded"), NULL;
    rd_kafka_t *rk = ((Client *)client)->rk;
    if (!rk) return PyErr_SetString(PyExc_RuntimeError, "the Kafka client is closed"), NULL;
    if (rd_kafka_type(rk) != type) return PyErr_SetString(PyExc_TypeError, "a Kafka client of the other kind"), NULL;
    return rk;
}

/* ---- Queue: the records of a consumer's partitions. Rebalances and errors of the client stay in the client's own. ---- */

typedef struct {
    PyObject_HEAD
    PyObject *consumer;
    rd_kafka_queue_t *queue;
} Queue;

static int queue_init(PyObject *self, PyObject *args, PyObject *kwargs) {
    Queue *of = (Queue *)self;
    PyObject *consumer;
    static char *names[] = {"consumer", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &consumer)) return -1;
    rd_kafka_t *rk = handle_of(consumer, CONSUMER);
    if (!rk) return -1;
    of->queue = rd_kafka_queue_new(rk);
    of->consumer = Py_NewRef(consumer);
    return 0;
}

static PyObject *queue_close(PyObject *self, PyObject *unused) {
    Queue *of = (Queue *)self;
    /* A consumer that was closed first has destroyed what the queue belongs to. */
    if (of->queue && ((Client *)of->consumer)->rk) rd_kafka_queue_destroy(of->queue);
    of->queue = NULL;
    Py_RETURN_NONE;
}

static void queue_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(queue_close(self, NULL));
    Py_XDECREF(((Queue *)self)->consumer);
    PyObject_Free(self);
    Py_DECREF(type);
}

static rd_kafka_t *open_handle(Queue *of) {
    if (!of->queue) return PyErr_SetString(PyExc_RuntimeError, "the queue is closed"), NULL;
    return handle_of(of->consumer, CONSUMER);
}

static PyObject *forward(Queue *of, PyObject *args, rd_kafka_queue_t *to) {
    const char *topic;
    int partition;
    if (!PyArg_ParseTuple(args, "si", &topic, &partition)) return NULL;
    rd_kafka_t *rk = open_handle(of);
    if (!rk) return NULL;
    rd_kafka_queue_t *from = rd_kafka_queue_get_partition(rk, topic, partition);
    if (!from) return PyErr_Format(PyExc_ValueError, "partition %d of topic %s is not assigned", partition, topic);
    rd_kafka_queue_forward(from, to);
    rd_kafka_queue_destroy(from);
    Py_RETURN_NONE;
}

static PyObject *queue_attach(PyObject *self, PyObject *args) { return forward((Queue *)self, args, ((Queue *)self)->queue); }
static PyObject *queue_detach(PyObject *self, PyObject *args) { return forward((Queue *)self, args, NULL); }

/* ---- Records to columns. ---- */

static PyObject *bytes_or_none(const void *data, size_t size) {
    return data ? PyBytes_FromStringAndSize(data, (Py_ssize_t)size) : Py_NewRef(Py_None);
}

/* Headers as a list of (name, value); None if there are none, NotImplemented if a name is not UTF-8. */
static PyObject *headers_of(const rd_kafka_message_t *record) {
    rd_kafka_headers_t *found;
    if (rd_kafka_message_headers(record, &found) != NO_ERROR) return Py_NewRef(Py_None);
    PyObject *list = PyList_New(0);
    const char *name;
    const void *value;
    size_t size;
    for (size_t i = 0; list && rd_kafka_header_get_all(found, i, &name, &value, &size) == NO_ERROR; i++) {
        PyObject *text = PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "strict");
        if (!text && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
            Py_DECREF(list);
            return Py_NewRef(Py_NotImplemented);
        }
        PyObject *pair = text ? Py_BuildValue("(NN)", text, bytes_or_none(value, size)) : NULL;
        if (!pair || PyList_Append(list, pair) < 0) Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

/* (topic, partition, keys, values, offsets, timestamps, kinds of timestamps, headers or None, whether offsets rise) */
static PyObject *columns(rd_kafka_message_t **records, Py_ssize_t count) {
    PyObject *keys = PyList_New(count), *values = PyList_New(count), *headers = NULL;
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, count * 8), *times = PyBytes_FromStringAndSize(NULL, count * 8);
    PyObject *kinds = PyBytes_FromStringAndSize(NULL, count);
    int rising = 1;
    if (!keys || !values || !offsets || !times || !kinds) goto failed;
    int64_t *offset_at = (int64_t *)PyBytes_AsString(offsets), *time_at = (int64_t *)PyBytes_AsString(times);
    char *kind_at = PyBytes_AsString(kinds);
    for (Py_ssize_t i = 0; i < count; i++) {
        const rd_kafka_message_t *record = records[i];
        PyObject *key = bytes_or_none(record->key, record->key_len), *value = bytes_or_none(record->payload, record->len);
        if (!key || !value) {
            Py_XDECREF(key);
            Py_XDECREF(value);
            goto failed;
        }
        PyList_SetItem(keys, i, key);
        PyList_SetItem(values, i, value);
        int kind;
        offset_at[i] = record->offset;
        time_at[i] = rd_kafka_message_timestamp(record, &kind);
        kind_at[i] = (char)kind;
        rising &= i == 0 || record->offset > records[i - 1]->offset;
        PyObject *own = headers_of(record);
        if (!own) goto failed;
        if (own == Py_None && !headers) {
            Py_DECREF(own);
            continue;
        }
        if (!headers) { /* the first record with headers: those before it have none */
            if (!(headers = PyList_New(count))) {
                Py_DECREF(own);
                goto failed;
            }
            for (Py_ssize_t before = 0; before < count; before++) PyList_SetItem(headers, before, Py_NewRef(Py_None));
        }
        PyList_SetItem(headers, i, own);
    }
    if (!headers) headers = Py_NewRef(Py_None);
    return Py_BuildValue("(siNNNNNNO)", rd_kafka_topic_name(records[0]->rkt), (int)records[0]->partition, keys, values, offsets,
                         times, kinds, headers, rising ? Py_True : Py_False);
failed:
    Py_XDECREF(keys);
    Py_XDECREF(values);
    Py_XDECREF(offsets);
    Py_XDECREF(times);
    Py_XDECREF(kinds);
    Py_XDECREF(headers);
    return NULL;
}

/* (topic or None, partition, offset, error code, text) */
static PyObject *error_item(const rd_kafka_message_t *item) {
    const char *topic = item->rkt ? rd_kafka_topic_name(item->rkt) : NULL;
    const char *text = item->payload ? (const char *)item->payload : rd_kafka_err2str(item->err);
    PyObject *reason = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    return reason ? Py_BuildValue("(ziLiN)", topic, (int)item->partition, (long long)item->offset, item->err, reason) : NULL;
}

static int same_run(const rd_kafka_message_t *a, const rd_kafka_message_t *b) {
    return a->rkt == b->rkt && a->partition == b->partition && b->err == NO_ERROR;
}

static int append(PyObject *list, PyObject *item) {
    int failed = !item || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed;
}

static PyObject *queue_take(PyObject *self, PyObject *args) {
    Queue *of = (Queue *)self;
    Py_ssize_t most;
    int timeout_ms;
    if (!PyArg_ParseTuple(args, "ni", &most, &timeout_ms) || !open_handle(of)) return NULL;
    if (most < 1) return PyErr_SetString(PyExc_ValueError, "at least one record must be taken"), NULL;
    rd_kafka_message_t **taken = malloc((size_t)most * sizeof *taken);
    if (!taken) return PyErr_NoMemory();
    rd_kafka_queue_t *queue = of->queue;
    ssize_t count;
    Py_BEGIN_ALLOW_THREADS
    count = rd_kafka_consume_batch_queue(queue, timeout_ms, taken, (size_t)most);
    Py_END_ALLOW_THREADS
    PyObject *runs = PyList_New(0), *errors = PyList_New(0);
    int failed = !runs || !errors;
    for (ssize_t start = 0, end; !failed && start < count; start = end) {
        end = start + 1;
        if (taken[start]->err != NO_ERROR) {
            failed = append(errors, error_item(taken[start]));
            continue;
        }
        while (end < count && same_run(taken[start], taken[end])) end++;
        failed = append(runs, columns(taken + start, end - start));
    }
    Py_BEGIN_ALLOW_THREADS
    for (ssize_t i = 0; i < count; i++) rd_kafka_message_destroy(taken[i]);
    Py_END_ALLOW_THREADS
    free(taken);
    if (!failed) return Py_BuildValue("(NN)", runs, errors);
    Py_XDECREF(runs);
    Py_XDECREF(errors);
    return NULL;
}

static PyMethodDef queue_methods[] = {
    {"attach", queue_attach, METH_VARARGS, NULL},
    {"detach", queue_detach, METH_VARARGS, NULL},
    {"take", queue_take, METH_VARARGS, NULL},
    {"close", queue_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot queue_slots[] = {
    {Py_tp_init, queue_init}, {Py_tp_new, PyType_GenericNew}, {Py_tp_dealloc, queue_dealloc}, {Py_tp_methods, queue_methods}, {0, NULL},
};
static PyType_Spec queue_spec = {"streamtable_native._native.Queue", sizeof(Queue), 0, Py_TPFLAGS_DEFAULT, queue_slots};

/* ---- Rows to a producer's queue. ---- */

static int fill(rd_kafka_message_t *record, PyObject *row) {
    PyObject *key, *value;
    char *data;
    Py_ssize_t size;
    if (!PyTuple_Check(row) || PyTuple_Size(row) != 2) return PyErr_SetString(PyExc_TypeError, "a row is (key, value)"), -1;
    key = PyTuple_GetItem(row, 0);
    value = PyTuple_GetItem(row, 1);
    if (PyBytes_AsStringAndSize(key, &data, &size) < 0) return -1;
    record->key = data;
    record->key_len = (size_t)size;
    if (value == Py_None) return 0;
    if (PyBytes_AsStringAndSize(value, &data, &size) < 0) return -1;
    record->payload = data;
    record->len = (size_t)size;
    return 0;
}

static PyObject *indexes_of_refused(const rd_kafka_message_t *records, Py_ssize_t count) {
    PyObject *refused = PyList_New(0);
    for (Py_ssize_t i = 0; refused && i < count; i++)
        if (records[i].err != NO_ERROR && append(refused, PyLong_FromSsize_t(i))) Py_CLEAR(refused);
    return refused;
}

static PyObject *produce_rows(PyObject *module, PyObject *args) {
    PyObject *producer, *given;
    const char *topic;
    int partition;
    if (!PyArg_ParseTuple(args, "OsiO", &producer, &topic, &partition, &given)) return NULL;
    rd_kafka_t *rk = handle_of(producer, PRODUCER);
    if (!rk) return NULL;
    /* A tuple, which no other thread can change while the interpreter is released. */
    PyObject *rows = PySequence_Tuple(given), *refused = NULL;
    if (!rows) return NULL;
    Py_ssize_t count = PyTuple_Size(rows);
    rd_kafka_message_t *records = calloc((size_t)count + 1, sizeof *records);
    rd_kafka_topic_t *rkt = NULL;
    if (!records) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (fill(records + i, PyTuple_GetItem(rows, i)) < 0) goto done;
    if (!(rkt = rd_kafka_topic_new(rk, topic, NULL))) {
        PyErr_Format(PyExc_ValueError, "not the name of a topic: %s", topic);
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    rd_kafka_produce_batch(rkt, partition, MSG_F_COPY, records, (int)count);
    Py_END_ALLOW_THREADS
    refused = indexes_of_refused(records, count);
done:
    if (rkt) rd_kafka_topic_destroy(rkt);
    free(records);
    Py_DECREF(rows);
    return refused;
}

/* ---- Outputs to a producer's queue. ---- */

typedef struct {
    const char *topic;
    void *key, *value;
    Py_ssize_t key_size, value_size;
    rd_kafka_headers_t *headers;
    long long time_ms, partition;
} Output;

/* What is read from Python's objects here is 1 if it is nothing that the client would take as it is; no error is set. */

static int read_bytes(PyObject *given, void **data, Py_ssize_t *size) {
    *data = NULL;
    *size = 0;
    return given != Py_None && (!PyBytes_Check(given) || PyBytes_AsStringAndSize(given, (char **)data, size) < 0);
}

static int read_text(PyObject *given, const char **text) {
    Py_ssize_t size;
    *text = PyUnicode_Check(given) ? PyUnicode_AsUTF8AndSize(given, &size) : NULL;
    PyErr_Clear();
    return !*text || strlen(*text) != (size_t)size;
}

static int read_number(PyObject *given, long long *number) {
    if (!PyLong_Check(given)) return 1;
    *number = PyLong_AsLongLong(given);
    int failed = PyErr_Occurred() != NULL;
    PyErr_Clear();
    return failed;
}

static int read_headers(PyObject *given, rd_kafka_headers_t **headers) {
    *headers = NULL;
    if (!PyTuple_Check(given) && !PyList_Check(given)) return 1;
    Py_ssize_t count = PySequence_Size(given);
    if (count == 0) return 0;
    *headers = rd_kafka_headers_new((size_t)count);
    int odd = 0;
    for (Py_ssize_t i = 0; !odd && i < count; i++) {
        PyObject *pair = PyTuple_Check(given) ? PyTuple_GetItem(given, i) : PyList_GetItem(given, i);
        const char *name;
        void *value;
        Py_ssize_t size;
        odd = !PyTuple_Check(pair) || PyTuple_Size(pair) != 2 || read_text(PyTuple_GetItem(pair, 0), &name) ||
              read_bytes(PyTuple_GetItem(pair, 1), &value, &size) ||
              rd_kafka_header_add(*headers, name, -1, value, size) != NO_ERROR;
    }
    if (!odd) return 0;
    rd_kafka_headers_destroy(*headers);
    *headers = NULL;
    return 1;
}

/* (topic, key, value, headers, timestamp, partition) */
static int read_output(PyObject *record, Output *output) {
    return !PyTuple_Check(record) || PyTuple_Size(record) != 6 || read_text(PyTuple_GetItem(record, 0), &output->topic) ||
           read_bytes(PyTuple_GetItem(record, 1), &output->key, &output->key_size) ||
           read_bytes(PyTuple_GetItem(record, 2), &output->value, &output->value_size) ||
           read_number(PyTuple_GetItem(record, 4), &output->time_ms) ||
           read_number(PyTuple_GetItem(record, 5), &output->partition) || output->partition != (int32_t)output->partition ||
           read_headers(PyTuple_GetItem(record, 3), &output->headers);
}

static int send_output(rd_kafka_t *rk, const Output *output) {
    return rd_kafka_producev(rk, V_TOPIC, output->topic, V_PARTITION, (int32_t)output->partition, V_MSGFLAGS, MSG_F_COPY, V_KEY,
                             output->key, (size_t)output->key_size, V_VALUE, output->value, (size_t)output->value_size,
                             V_TIMESTAMP, (int64_t)output->time_ms, V_HEADERS, output->headers, V_END);
}

/* Returns how many were queued: all, or those before the first one that was not. */
static Py_ssize_t send_part(rd_kafka_t *rk, PyObject *part, Output *outputs) {
    Py_ssize_t size = PyTuple_Size(part), count = 0, queued = 0;
    while (count < size && read_output(PyTuple_GetItem(part, count), outputs + count) == 0) count++;
    Py_BEGIN_ALLOW_THREADS
    while (queued < count && send_output(rk, outputs + queued) == NO_ERROR) queued++;
    /* Those of a queued record are the client's. */
    for (Py_ssize_t i = queued; i < count; i++)
        if (outputs[i].headers) rd_kafka_headers_destroy(outputs[i].headers);
    Py_END_ALLOW_THREADS
    return queued;
}

enum { PART = 512 };

static PyObject *produce_records(PyObject *module, PyObject *args) {
    PyObject *producer, *records;
    if (!PyArg_ParseTuple(args, "OO", &producer, &records)) return NULL;
    rd_kafka_t *rk = handle_of(producer, PRODUCER);
    Py_ssize_t start = 0, total = rk ? PySequence_Size(records) : -1;
    if (total < 0) return NULL;
    Output *outputs = malloc(PART * sizeof *outputs);
    if (!outputs) return PyErr_NoMemory();
    int stopped = 0;
    while (!stopped && start < total) {
        PyObject *slice = PySequence_GetSlice(records, start, start + PART);
        /* A tuple, which no other thread can change while the interpreter is released. */
        PyObject *part = slice ? PySequence_Tuple(slice) : NULL;
        Py_XDECREF(slice);
        if (!part) break;
        Py_ssize_t queued = send_part(rk, part, outputs);
        start += queued;
        stopped = queued < PyTuple_Size(part) || queued == 0;
        Py_DECREF(part);
    }
    free(outputs);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(start);
}

/* ---- The module. ---- */

static PyMethodDef functions[] = {
    {"load", load, METH_O, NULL},
    {"produce_rows", produce_rows, METH_VARARGS, NULL},
    {"produce_records", produce_records, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static int fill_module(PyObject *module) {
    PyObject *type = PyType_FromSpec(&queue_spec);
    if (!type) return -1;
    int failed = PyModule_AddObjectRef(module, "Queue", type);
    Py_DECREF(type);
    return failed;
}
static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, functions, slots, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
