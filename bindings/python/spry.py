"""Python binding of libspry, in one file and without dependencies.

    import spry

    with spry.Engine("model.gguf") as engine:
        for piece in engine.chat("Tell me a story."):
            print(piece, end="", flush=True)
        replies = engine.batch(["One.", "Two.", "Three."], max_tokens=50)
        vectors = engine.embed(["a text", "another text"])

The library is the file that the environment variable SPRY_LIBRARY names, else libspry.so (on macOS libspry.dylib)
beside this file, else the one of the system. An engine may be used from several threads: answers of all of them are computed together. Everything that
fails raises spry.Error.
"""

import atexit
import base64
import collections
import contextlib
import ctypes
import ctypes.util
import enum
import itertools
import json
import os
import queue
import sys
import threading
import time
import weakref
from ctypes import (POINTER, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint8, c_uint32,
                    c_uint64, c_void_p)

__all__ = ["Answer", "Conversation", "Engine", "Error", "Reply", "Status", "version"]

VERSION = (0, 1)  # of the interface that the structs below describe
_DRAFT_MOST = 16
_PARTS_ROOM = 32


class Status(enum.IntEnum):
    """What went wrong: spry.Error.status."""

    OK = 0
    INPUT = 1
    FILE = 2
    FORMAT = 3
    UNSUPPORTED = 4
    MEMORY = 5
    CONTEXT = 6
    CANCELLED = 7
    BUSY = 8
    DEVICE = 9


class Error(Exception):
    """One sentence from the library, and the kind of failure as a Status (or an int that this file does not know)."""

    def __init__(self, status, message):
        super().__init__(message)
        try:
            self.status = Status(status)
        except ValueError:
            self.status = status


# ---- the structs of spry.h -------------------------------------------------------------------------------------------

_OnText = ctypes.CFUNCTYPE(c_bool, c_void_p, POINTER(c_char), c_size_t)
_OnDone = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
_OnLog = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class _Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("message", c_char * 512)]


class _EngineOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("context", c_uint32), ("sessions", c_uint32), ("chunk", c_uint32),
                ("threads", c_uint32), ("kv_type", c_char_p), ("kv_bytes", c_size_t), ("cache_bytes", c_size_t),
                ("cache_dir", c_char_p), ("cache_disk_bytes", c_size_t), ("cache_ttl", c_uint32),
                ("data_is_mapped", c_bool), ("device", c_char_p), ("cpu", c_char_p), ("quantize", c_char_p),
                ("chat_template", c_char_p), ("trace", c_void_p), ("log", _OnLog), ("log_user", c_void_p),
                ("kv_idle", c_uint32), ("kv_idle_share", c_uint32), ("lora", c_char_p), ("span_pages", c_uint32),
                ("expert_bytes", c_size_t), ("gpu_layers", c_char_p),
                ("cache_host_bytes", c_size_t), ("mmproj", c_char_p), ("max_image_pixels", c_size_t),
                ("draft_head", c_char_p), ("gpu_bytes", c_size_t)]


class _EngineInfo(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("architecture", c_char_p), ("vocabulary", c_size_t), ("embedding", c_size_t),
                ("parameters", c_size_t), ("context", c_size_t), ("weight_bytes", c_size_t), ("copied_bytes", c_size_t),
                ("kv_bytes_per_token", c_size_t), ("kv_bytes", c_size_t), ("scratch_bytes", c_size_t),
                ("cpu", c_char_p), ("threads", c_uint32), ("chunk", c_uint32), ("device", c_char_p),
                ("reserved", c_uint64 * 15)]


class _ChatPrompt(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("ids", POINTER(c_int32)), ("count", c_size_t), ("spans", c_void_p),
                ("n_spans", c_size_t), ("template_ms", c_double), ("tokenize_ms", c_double), ("call_constraint", c_void_p),
                ("reserved_texts", c_void_p * 2), ("pictures", c_void_p), ("n_pictures", c_uint64),
                ("picture_tokens", c_uint64), ("preprocess_ms", c_double), ("encode_ms", c_double), ("reserved", c_uint64 * 3)]


class _LogitBias(ctypes.Structure):
    _fields_ = [("token", c_int32), ("bias", c_float)]


class _Sampling(ctypes.Structure):
    _fields_ = [("repeat_penalty", c_float), ("presence_penalty", c_float), ("frequency_penalty", c_float),
                ("penalty_window", c_uint32), ("bias", POINTER(_LogitBias)), ("n_bias", c_size_t),
                ("temperature", c_float), ("top_k", c_uint32), ("top_p", c_float), ("min_p", c_float),
                ("typical_p", c_float), ("seed", c_uint64), ("penalty_scope", c_char_p),
                ("reserved", c_uint64 * 7)]


class _Request(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("prompt", POINTER(c_int32)), ("n_prompt", c_size_t), ("spans", c_void_p),
                ("n_spans", c_size_t), ("span_repair", c_size_t), ("sampling", _Sampling), ("stop", POINTER(c_char_p)),
                ("n_stop", c_size_t), ("constraint_text", c_char_p), ("constraint", c_int), ("speculation", c_int),
                ("max_tokens", c_uint32), ("draft_most", c_uint32), ("logprobs", c_uint32), ("lane", c_uint32),
                ("on_text", _OnText), ("on_token", c_void_p), ("on_prefill", c_void_p), ("user", c_void_p),
                ("special", c_bool), ("ignore_end", c_bool), ("marks", c_bool), ("json_style", c_uint8), ("draft_precise", c_bool),
                ("thought_budget", c_uint32), ("pictures", c_void_p), ("n_pictures", c_size_t)]


class _DraftReport(ctypes.Structure):
    _fields_ = [("steps", c_size_t), ("drafted", c_size_t), ("accepted", c_size_t),
                ("tried_at", c_size_t * _DRAFT_MOST), ("accepted_at", c_size_t * _DRAFT_MOST),
                ("lengths", c_size_t * (_DRAFT_MOST + 1)), ("tokens_per_step", c_double),
                ("speedup", c_double), ("refused_p50", c_uint32), ("refused_p95", c_uint32), ("prefill_ms", c_double),
                ("step_cost", c_double), ("acceptance", c_double), ("reserved", c_uint64 * 5)]


class _Result(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("prompt_tokens", c_size_t), ("generated_tokens", c_size_t),
                ("reused_tokens", c_size_t), ("restored_tokens", c_size_t), ("span_tokens", c_size_t),
                ("repaired_tokens", c_size_t), ("lookup_ms", c_double), ("restore_ms", c_double),
                ("prefill_ms", c_double), ("first_token_ms", c_double), ("decode_ms", c_double), ("total_ms", c_double),
                ("drafts", _DraftReport), ("parts_ms", c_double * _PARTS_ROOM),
                ("first_parts_ms", c_double * _PARTS_ROOM), ("n_parts", c_size_t), ("finish", c_int),
                ("stop", c_uint32), ("forced_tokens", c_size_t), ("dropped_tokens", c_size_t),
                ("span_divergence", c_double), ("picture_tokens", c_size_t), ("reserved", c_uint64 * 12)]


class _JobOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("session", c_void_p), ("salt", c_void_p), ("salt_size", c_size_t),
                ("slide", c_bool), ("keep", c_size_t), ("client", c_uint64), ("on_done", _OnDone), ("user", c_void_p),
                ("batch", c_uint64), ("lora", c_char_p)]


_STRUCTS = {"spry_error": _Error, "spry_engine_options": _EngineOptions, "spry_engine_info": _EngineInfo,
            "spry_chat_prompt": _ChatPrompt, "spry_logit_bias": _LogitBias, "spry_sampling": _Sampling,
            "spry_request": _Request, "spry_draft_report": _DraftReport, "spry_result": _Result,
            "spry_job_options": _JobOptions}
_FINISH = {0: "end", 1: "stop", 2: "length", 3: "context", 4: "cancelled"}
_CONSTRAINTS = {"grammar": 1, "json_schema": 2, "regex": 3, "choices": 4, "json_object": 5}
_DRAFTS = {"auto": 0, "none": 1, "lookup": 2, "model": 3}
_IDS = POINTER(c_int32)

# Name, result, arguments. A result of Status means that the last argument is a spry_error.
_FUNCTIONS = [
    ("spry_version", c_char_p, []),
    ("spry_version_number", c_uint32, []),
    ("spry_engine_options_default_sized", None, [c_void_p, c_size_t]),
    ("spry_engine_open", Status, [POINTER(c_void_p), c_char_p, POINTER(_EngineOptions)]),
    ("spry_engine_close", c_int, [c_void_p]),
    ("spry_engine_describe", None, [c_void_p, POINTER(_EngineInfo)]),
    ("spry_engine_set_drafter", Status, [c_void_p, c_void_p]),
    ("spry_engine_tokenize", Status, [c_void_p, _IDS, c_size_t, POINTER(c_size_t), c_char_p, c_size_t, c_bool]),
    ("spry_engine_detokenize", Status, [c_void_p, c_void_p, c_size_t, POINTER(c_size_t), _IDS, c_size_t, c_bool]),
    ("spry_engine_chat_prompt", Status, [c_void_p, POINTER(_ChatPrompt), c_char_p, c_size_t]),
    ("spry_engine_sees", c_bool, [c_void_p]),
    ("spry_chat_prompt_deinit", None, [POINTER(_ChatPrompt)]),
    ("spry_request_default_sized", None, [c_void_p, c_size_t]),
    ("spry_job_options_default_sized", None, [c_void_p, c_size_t]),
    ("spry_job_create_answer", Status, [POINTER(c_void_p), c_void_p, POINTER(_Request), POINTER(_JobOptions)]),
    ("spry_job_create_embedding", Status, [POINTER(c_void_p), c_void_p, _IDS, c_size_t, POINTER(_JobOptions)]),
    ("spry_job_submit", Status, [c_void_p]),
    ("spry_job_wait", Status, [c_void_p, c_double]),
    ("spry_job_result", Status, [c_void_p, POINTER(_Result)]),
    ("spry_job_embedding", POINTER(c_float), [c_void_p]),
    ("spry_job_cancel", None, [c_void_p]),
    ("spry_job_free", None, [c_void_p]),
]

# ---- the library -----------------------------------------------------------------------------------------------------

_NAME, _NAME_OF_VERSION = (("libspry.dylib", "libspry.%d.%d.dylib" % VERSION) if sys.platform == "darwin" else
                           ("libspry.so", "libspry.so.%d.%d" % VERSION))
_load_lock = threading.Lock()
_library = None


def _candidates():
    named = os.environ.get("SPRY_LIBRARY")
    if named:
        return [named]
    here = os.path.dirname(os.path.abspath(__file__))
    beside = [os.path.join(here, name) for name in (_NAME, _NAME_OF_VERSION)]
    system = [_NAME_OF_VERSION, ctypes.util.find_library("spry")]
    return [path for path in beside if os.path.exists(path)] + [name for name in system if name]


def _load():
    tried = []
    for name in _candidates():
        try:
            library = ctypes.CDLL(name)
            break
        except OSError as problem:
            tried.append(str(problem))
    else:
        raise Error(Status.FILE, _NAME + " was not found: " + "; ".join(tried))
    for name, result, arguments in _FUNCTIONS:
        function = getattr(library, name, None)
        if function is None:
            raise Error(Status.UNSUPPORTED, "%s has no %s" % (library._name, name))
        function.restype = c_int if result is Status else result
        function.argtypes = arguments + ([POINTER(_Error)] if result is Status else [])
    number = library.spry_version_number()
    if (number // 10000, number // 100 % 100) != VERSION:
        text = library.spry_version().decode()
        raise Error(Status.UNSUPPORTED, "%s is version %s, this binding is for %d.%d" % (library._name, text, *VERSION))
    return library


def _lib():
    """The library, loaded with the first call."""
    global _library
    if _library is None:
        with _load_lock:
            if _library is None:
                _library = _load()
    return _library


def _call(name, *arguments):
    """Calls a function that returns a spry_status, and raises what it says."""
    error = _Error()
    status = getattr(_lib(), name)(*arguments, byref(error))
    if status:
        raise Error(status, error.message.decode("utf-8", "replace"))


def _defaults(struct, function):
    """A struct with the library's defaults for the members that this file knows."""
    made = struct()
    getattr(_lib(), function)(byref(made), ctypes.sizeof(made))
    return made


def _set(struct, name, value):
    """Sets a member; a number that does not fit is an error, which ctypes alone would not say."""
    setattr(struct, name, value)
    if isinstance(value, int) and isinstance(getattr(struct, name), int) and getattr(struct, name) != value:
        raise ValueError("%s=%d is out of range" % (name, value))


def _text(value):
    """Text for the library, which ends at the first zero."""
    data = os.fspath(value).encode("utf-8", "surrogateescape")  # a path may hold any bytes
    if b"\0" in data:
        raise ValueError("there is a zero in %r" % value)
    return data


def _ids(values):
    values = list(values)
    return (c_int32 * len(values))(*values), len(values)


def version():
    """The version of the library, as text."""
    return _lib().spry_version().decode()


# ---- jobs ------------------------------------------------------------------------------------------------------------

# Callbacks run on the engine's thread and only put what they get into the queue of their job, which `user` names.
_queues = {}
_numbers = itertools.count(1)


@_OnText
def _on_text(user, text, size):
    events = _queues.get(user)
    if events is None:
        return False
    events.put(text[:size])
    return True


@_OnDone
def _on_done(user, _job):
    events = _queues.get(user)
    if events is not None:
        events.put(None)


class _Job:
    """A job of the library; its last event is None."""

    def __init__(self, engine, settings=None):
        self._engine = engine
        self._handle = None
        self._free_lock = threading.Lock()
        self._events = queue.SimpleQueue()
        self._number = next(_numbers)
        self._options = _defaults(_JobOptions, "spry_job_options_default_sized")
        for name in ("slide", "keep", "client"):
            if settings and name in settings:
                _set(self._options, name, settings.pop(name))
        self._options.on_done = _on_done
        self._options.user = self._number

    def _submit(self, function, *arguments, patient=False):
        """Creates and submits it. patient: when too many jobs wait, tries again until there is a place."""
        _queues[self._number] = self._events
        handle = c_void_p()
        try:
            with self._engine._using() as engine:
                _call(function, byref(handle), engine, *arguments, byref(self._options))
                self._handle = handle
                self._engine._jobs.add(self)
            while not self._try_submit(patient):
                time.sleep(0.005)
        except BaseException:
            self._free()
            raise

    def _try_submit(self, patient):
        with self._held() as handle:
            try:
                _call("spry_job_submit", handle)
            except Error as problem:
                if not patient or problem.status != Status.BUSY:
                    raise
                return False
            return True

    @contextlib.contextmanager
    def _held(self):
        """The handle, which no other thread frees meanwhile."""
        with self._free_lock:
            if not self._handle:
                raise Error(Status.CANCELLED, "it was closed before its end")
            yield self._handle

    def _read(self, result):
        """What came of a job whose last event was read. Frees it."""
        try:
            with self._held() as handle:
                _call("spry_job_wait", handle, -1.0)
                _call("spry_job_result", handle, byref(result))
                return self._value(handle)
        finally:
            self._free()

    def _free(self):
        """Cancels it where it is not over; none of its callbacks runs any more then."""
        with self._free_lock:
            handle, self._handle = self._handle, None
        _queues.pop(self._number, None)
        if handle:
            _lib().spry_job_free(handle)
        self._events.put(None)  # for a thread that waits

    def __del__(self):
        if getattr(self, "_number", None):
            self._free()


# ---- answers ---------------------------------------------------------------------------------------------------------

Reply = collections.namedtuple(
    "Reply", "text finish prompt_tokens generated_tokens reused_tokens prefill_ms total_ms")
Reply.__doc__ = """A complete answer. finish: "end", "stop", "length", "context" or "cancelled"."""

_SAMPLING = ("repeat_penalty", "presence_penalty", "frequency_penalty", "penalty_window", "temperature", "top_k",
             "top_p", "min_p", "typical_p", "seed")
_PLAIN = ("max_tokens", "draft_most", "special", "ignore_end")


def _constrain(request, name, value):
    if request.constraint:
        raise TypeError("an answer can have one of %s" % ", ".join(_CONSTRAINTS))
    request.constraint = _CONSTRAINTS[name]
    if name == "choices" or (name == "json_schema" and not isinstance(value, str)):
        value = json.dumps(value)
    if name != "json_object":
        request.constraint_text = _text(value)


def _make_request(ids, settings):
    """A spry_request; what it points to lives as long as it does."""
    request = _defaults(_Request, "spry_request_default_sized")
    request.prompt, request.n_prompt = _ids(ids)
    for name, value in settings.items():
        if value is None or (name == "json_object" and not value):
            continue
        if name in _SAMPLING:
            _set(request.sampling, name, value)
        elif name in _PLAIN:
            _set(request, name, value)
        elif name in _CONSTRAINTS:
            _constrain(request, name, value)
        elif name == "stop":
            words = [value] if isinstance(value, str) else list(value)
            request.stop = (c_char_p * len(words))(*map(_text, words))
            request.n_stop = len(words)
        elif name == "logit_bias":
            request.sampling.bias = (_LogitBias * len(value))(*value.items())
            request.sampling.n_bias = len(value)
        elif name == "draft" and value in _DRAFTS:
            request.speculation = _DRAFTS[value]
        else:
            raise TypeError("%s=%r is not a setting of an answer" % (name, value))
    return request


def _with_pictures(message):
    """A message whose "images" (paths, or bytes of files) are parts of its content, before its text."""
    if not isinstance(message, dict) or not message.get("images"):
        return message
    content = message.get("content", "")
    parts = []
    for image in message["images"]:
        if not isinstance(image, (bytes, bytearray)):
            with open(image, "rb") as file:
                image = file.read()
        url = "data:;base64," + base64.b64encode(image).decode("ascii")
        parts.append({"type": "image_url", "image_url": {"url": url}})
    parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**{name: value for name, value in message.items() if name != "images"}, "content": parts}


class Answer(_Job):
    """An answer that is being computed: iterate over it for pieces of text as they come. After the last piece `reply`
    is the whole answer. Leaving it (close, or the end of a with statement) stops the computation."""

    def __init__(self, engine, ids, settings, patient=False, prompt=None):
        settings = dict(settings)
        super().__init__(engine, settings)
        self.reply = None
        self._pieces = []
        request = _make_request(ids, settings)
        if prompt:
            request.pictures = prompt.pictures
            request.n_pictures = prompt.n_pictures
        request.on_text = _on_text
        request.user = self._number
        self._submit("spry_job_create_answer", byref(request), patient=patient)  # which copies all of it

    def __iter__(self):
        return self

    def __next__(self):
        if not self._handle:
            raise StopIteration
        piece = self._events.get()
        if piece is None:
            result = _Result()
            if self._handle:
                self._read(result)
                self.reply = Reply("".join(self._pieces), _FINISH.get(result.finish, "unknown"), result.prompt_tokens,
                                   result.generated_tokens, result.reused_tokens, result.prefill_ms, result.total_ms)
            raise StopIteration
        piece = piece.decode("utf-8", "replace")  # whole characters
        self._pieces.append(piece)
        return piece

    def _value(self, _handle):
        return None

    def result(self):
        """Waits for the end and gives the Reply."""
        for _ in self:
            pass
        if self.reply is None:
            raise Error(Status.CANCELLED, "the answer was closed before its end")
        return self.reply

    def cancel(self):
        """Ends the answer at its next step; what is computed until then can still be read. Any thread."""
        with self._free_lock:
            if self._handle:
                _lib().spry_job_cancel(self._handle)

    def close(self):
        """Stops the answer and frees it. Any thread."""
        self._free()

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()


class _Embedding(_Job):
    def __init__(self, engine, ids):
        super().__init__(engine)
        self._submit("spry_job_create_embedding", *_ids(ids), patient=True)

    def _value(self, handle):
        return _lib().spry_job_embedding(handle)[: self._engine.info["embedding"]]

    def result(self):
        self._events.get()
        return self._read(_Result())


# ---- engine ----------------------------------------------------------------------------------------------------------

_TEXT_OPTIONS = ("kv_type", "cache_dir", "device", "cpu", "quantize", "chat_template", "lora", "gpu_layers",
                 "mmproj", "draft_head")
_NUMBER_OPTIONS = ("context", "sessions", "chunk", "threads", "kv_bytes", "cache_bytes", "cache_disk_bytes", "cache_host_bytes",
                   "cache_ttl", "kv_idle", "kv_idle_share", "span_pages", "expert_bytes", "max_image_pixels", "gpu_bytes")
_engines = weakref.WeakSet()


@atexit.register
def _close_all():
    """Before the interpreter ends: its threads must not call into it any more."""
    for engine in list(_engines):
        engine.close()


class Engine:
    """A model, loaded once: a file, a folder, or a name of spry_engine_open. Options are those of spry_engine_options: context, threads, kv_type, kv_bytes, cache_dir,
    device, cpu, quantize, chat_template and others. `sessions` is how many answers can be computed together. log: a function of
    a level (0 debug, 1 information, 2 warning) and a sentence, called on threads of the engine."""

    def __init__(self, path, *, sessions=4, log=None, **options):
        self._handle = None
        self._jobs = weakref.WeakSet()
        self._drafter = None
        self._unused = threading.Condition()
        self._n_users = 0
        made = _defaults(_EngineOptions, "spry_engine_options_default_sized")
        for name, value in dict(options, sessions=sessions).items():
            if name not in _TEXT_OPTIONS + _NUMBER_OPTIONS:
                raise TypeError("%s is not an option of an engine" % name)
            if value is not None:
                _set(made, name, _text(value) if name in _TEXT_OPTIONS else value)
        if log:
            self._log = _OnLog(lambda _user, level, sentence: log(level, sentence.decode("utf-8", "replace")))
            made.log = self._log
        handle = c_void_p()
        _call("spry_engine_open", byref(handle), _text(path), byref(made))
        self._handle = handle
        _engines.add(self)
        info = _EngineInfo()
        _lib().spry_engine_describe(handle, byref(info))
        values = ((name, getattr(info, name)) for name, *_ in _EngineInfo._fields_)
        #: What spry_engine_describe says, as a dictionary.
        self.info = {name: value.decode() if isinstance(value, bytes) else value for name, value in values
                     if name != "size" and not name.startswith("reserved")}

    def close(self):
        """Stops the answers that are being computed, and frees the model. Twice is fine."""
        with self._unused:
            handle, self._handle = self._handle, None
            while self._n_users:
                self._unused.wait()
        for job in list(self._jobs):
            job._free()
        if handle and _lib().spry_engine_close(handle):
            self._handle = handle
            raise Error(Status.BUSY, "the engine is in use")

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()

    @contextlib.contextmanager
    def _using(self):
        """The handle, which is not closed meanwhile."""
        with self._unused:
            if not self._handle:
                raise Error(Status.INPUT, "the engine is closed")
            self._n_users += 1
            handle = self._handle
        try:
            yield handle
        finally:
            with self._unused:
                self._n_users -= 1
                self._unused.notify_all()

    def _sized(self, kind, function, *arguments):
        """An array from a function that says how many elements there are, and writes as many as there is room for."""
        count = c_size_t()
        with self._using() as engine:
            _call(function, engine, None, 0, byref(count), *arguments)
            made = (kind * (count.value + 1))()
            _call(function, engine, made, count.value + 1, byref(count), *arguments)
        return made[: count.value]

    def tokenize(self, text, special=False):
        """Ids of a text. special: spellings of control tokens become control tokens; not for what a user typed."""
        data = text.encode("utf-8")
        return self._sized(c_int32, "spry_engine_tokenize", data, len(data), special)

    def detokenize(self, ids, special=False):
        """The text of ids."""
        return self._sized(c_char, "spry_engine_detokenize", *_ids(ids), special).decode("utf-8", "replace")

    @contextlib.contextmanager
    def _prompt(self, messages, tools=None, template=None):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        conversation = {"messages": [_with_pictures(message) for message in messages]}
        if tools:
            conversation["tools"] = tools
        if template:
            conversation["chat_template_kwargs"] = template
        data = json.dumps(conversation).encode("ascii")
        prompt = _ChatPrompt()
        try:
            with self._using() as engine:
                _call("spry_engine_chat_prompt", engine, byref(prompt), data, len(data))
            yield prompt
        finally:
            _lib().spry_chat_prompt_deinit(byref(prompt))

    @property
    def sees(self):
        """Whether the model sees pictures: the "images" of messages."""
        with self._using() as engine:
            return bool(_lib().spry_engine_sees(engine))

    def chat_ids(self, messages, tools=None, template=None):
        """Ids of a conversation as the model's chat template writes it. messages: a text of the user, or a list of
        dictionaries with "role" and "content", and for models that see "images" (paths, or bytes of PNG, JPEG, WebP or
        GIF files), whose ids are placeholders; template: variables for the template."""
        with self._prompt(messages, tools, template) as prompt:
            return prompt.ids[: prompt.count]

    def chat(self, messages, tools=None, template=None, **settings):
        """The Answer to a conversation, to be iterated over; messages as in chat_ids. Settings: max_tokens, temperature,
        top_k, top_p, min_p, typical_p, seed, repeat_penalty, presence_penalty, frequency_penalty, penalty_window,
        logit_bias, stop, draft, ignore_end, special; one of grammar, json_schema, regex, choices, json_object; slide and
        keep, for when the context is full."""
        return self._answer(messages, settings, tools, template)

    def _answer(self, messages, settings, tools=None, template=None, patient=False):
        with self._prompt(messages, tools, template) as prompt:
            return Answer(self, prompt.ids[: prompt.count], settings, patient=patient, prompt=prompt)

    def complete(self, prompt, **settings):
        """The Answer that continues a text, or a list of ids, without a chat template. Settings as in chat."""
        return Answer(self, self.tokenize(prompt) if isinstance(prompt, str) else prompt, settings)

    def batch(self, conversations, **settings):
        """Answers to many conversations, computed together: a list of Replies in the same order. Each conversation is
        what chat takes as messages; the settings are for all of them."""
        return self._together(lambda messages: self._answer(messages, settings, patient=True), conversations)

    def embed(self, texts):
        """The embedding of each text, a list of floats with length 1; of one text when it is given alone."""
        if isinstance(texts, str):
            return self.embed([texts])[0]
        return self._together(lambda text: _Embedding(self, self.tokenize(text)), texts)

    @staticmethod
    def _together(make, items):
        jobs = []
        try:
            for item in items:
                jobs.append(make(item))
            return [job.result() for job in jobs]
        finally:
            for job in jobs:
                job._free()

    def conversation(self, system=None, **settings):
        """A Conversation; settings as in chat, for all its turns."""
        return Conversation(self, system, settings)

    def set_drafter(self, drafter):
        """Lets the model of another Engine draft tokens for this one; None: no longer."""
        with self._using() as engine:
            _call("spry_engine_set_drafter", engine, drafter._handle if drafter else None)
        self._drafter = drafter


class Conversation:
    """Messages that grow with every turn. Each turn passes all of them; the engine computes only what is new."""

    def __init__(self, engine, system, settings):
        self._engine = engine
        self._settings = settings
        self.messages = [{"role": "system", "content": system}] if system else []

    def say(self, text, images=(), **settings):
        """Says something, with pictures as in chat_ids, and gives the pieces of the answer as they come. What was not
        answered at all is forgotten."""
        turn = {"role": "user", "content": text, **({"images": list(images)} if images else {})}
        said = []
        try:
            with self._engine.chat(self.messages + [turn], **{**self._settings, **settings}) as answer:
                for piece in answer:
                    said.append(piece)
                    yield piece
        finally:
            if said:
                self.messages += [turn, {"role": "assistant", "content": "".join(said)}]
