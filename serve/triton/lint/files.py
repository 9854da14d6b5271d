"""Rules about the files of a version, and which backend they are for."""

from serve.core.errors import Invalid
from serve.core.naming import check_model_name
from serve.core.versions import CONVERSION
from serve.triton.lint import backends
from serve.triton.lint.subject import Finding, Findings, Subject

NEWEST_OPSET = 22  # of ONNX Runtime 1.22, which Triton 25.05 to 25.07 have; later ones read more
TENSORFLOW_END = "Triton's TensorFlow backend ended with release 25.02"


def name_invalid(subject: Subject) -> Findings:
    """A name that cannot be a model's.

    Triton takes more names than can be asked for over HTTP.
    """
    try:
        check_model_name(subject.name)
    except Invalid as error:
        yield Finding("name", f"{error.what}: {error.why}", "another name")


def name_differs(subject: Subject) -> Findings:
    """`name` in config.pbtxt is not the model's name.

    Triton refuses the load; Servegate leaves the name out, because it chooses the folder's name.
    """
    name = subject.message.name
    if name and name != subject.name:
        yield Finding("name", f"it is '{name}', the model is '{subject.name}'", "leave it out")


def version_policy_ignored(subject: Subject) -> Findings:
    """A `version_policy` in the file.

    Servegate loads each version by its number, whatever the policy says. `all` says just that.
    """
    message = subject.message
    if message.HasField("version_policy") and not message.version_policy.HasField("all"):
        yield Finding(
            "version_policy",
            "it is ignored: which versions are loaded is decided by what is published",
            "leave it out",
        )


def label_file_missing(subject: Subject) -> Findings:
    """The label file of an output is not there.

    Triton: `failed to open text file for read`.
    """
    for entry in subject.message.output:
        path = entry.label_filename
        if path and path not in subject.model_files and not _is_in_version(subject, path):
            yield Finding(
                f"output '{entry.name}'.label_filename",
                f"there is no file '{path}' beside config.pbtxt",
                "add the file, one label on each line",
            )


def label_file_misplaced(subject: Subject) -> Findings:
    """The label file lies in the version folder, not beside config.pbtxt.

    Triton looks beside config.pbtxt only; a path with a version's number breaks when it changes.
    """
    for entry in subject.message.output:
        path = entry.label_filename
        if path and path not in subject.model_files and _is_in_version(subject, path):
            yield Finding(
                f"output '{entry.name}'.label_filename",
                f"'{path}' lies in the version folder",
                "move the file beside config.pbtxt, and name it without a folder",
            )


def _is_in_version(subject: Subject, path: str) -> bool:
    first, _, rest = path.partition("/")
    return path in subject.version_files or (first.isdigit() and rest in subject.version_files)


def platform_unknown(subject: Subject) -> Findings:
    """A platform that Triton does not know.

    Triton: `unexpected platform type`.
    """
    platform = subject.message.platform
    if platform and not subject.message.backend and platform not in backends.PLATFORMS:
        yield Finding(
            "platform",
            f"Triton knows no platform '{platform}'",
            f"one of {', '.join(sorted(backends.PLATFORMS))}; or backend: …",
        )


def backend_unknown(subject: Subject) -> Findings:
    """A backend that is in none of NVIDIA's images.

    Triton: `unable to find backend library for backend`; it loads where somebody has added it.
    """
    backend = subject.message.backend
    if backend and backend not in backends.KNOWN:
        yield Finding(
            "backend",
            f"'{backend}' is no backend that comes with Triton",
            f"one of {', '.join(sorted(backends.KNOWN - {'ensemble', 'tensorflow'}))}",
        )


def backend_missing(subject: Subject) -> Findings:
    """Neither backend nor platform, and no file that tells.

    Triton: `Could not determine backend for model`.
    """
    message = subject.message
    named = message.backend or message.platform or subject.is_ensemble
    told = subject.backend or _is_tensorflow(subject)
    if not named and not told and subject.version_files:
        yield Finding(
            "backend",
            f"it is missing, and no file says it: {', '.join(sorted(subject.version_files)[:5])}",
            'such as backend: "onnxruntime" with a file model.onnx',
        )


def platform_against_backend(subject: Subject) -> Findings:
    """Platform and backend contradict each other.

    Triton: `unexpected 'platform' and 'backend' pair`.
    """
    message = subject.message
    expected = backends.of_platform(message.platform)
    known = message.platform in backends.PLATFORMS and message.platform != "ensemble"
    if message.backend and known and message.backend != expected:
        yield Finding(
            "platform",
            f"'{message.platform}' runs on the backend '{expected}', not on '{message.backend}'",
            "leave platform out",
        )


def tensorflow_ended(subject: Subject) -> Findings:
    """A model for the TensorFlow backend.

    Triton from 25.03 on: `unable to find backend library for backend 'tensorflow'`.
    """
    if _is_tensorflow(subject):
        yield Finding("platform", TENSORFLOW_END, "convert it to ONNX: servegate convert onnx")


def _is_tensorflow(subject: Subject) -> bool:
    message = subject.message
    if message.backend or message.platform:
        return bool(message.platform.startswith("tensorflow_") or message.backend == "tensorflow")
    saved = any(map(subject.has_version_file, ("model.savedmodel", "saved_model.pb")))
    return saved and not subject.backend


def version_empty(subject: Subject) -> Findings:
    """A version folder without files.

    The backend refuses the load. Only an ensemble has no file of its own.
    """
    if not subject.version_files and not subject.is_ensemble:
        yield Finding(
            "version folder",
            "there is no file in it",
            f"the model's file as 1/{subject.model_file or 'model.onnx'}",
        )


def platform_against_file(subject: Subject) -> Findings:
    """The version holds the model file of another backend.

    The backend refuses the load: `the model's directory has no file '1/model.onnx'`.
    """
    found = _other_file(subject)
    if found:
        yield Finding(
            "platform" if subject.message.platform else "backend",
            f"it wants {subject.model_file}, the version holds {found}",
            f'backend: "{backends.backend_of_file(found)}"',
        )


def model_file_missing(subject: Subject) -> Findings:
    """The file that the backend opens is not there.

    The backend refuses the load.
    """
    file = subject.model_file
    missing = file and subject.version_files and not subject.has_version_file(file)
    configured = subject.message.default_model_filename
    if missing and not configured and not _other_file(subject):
        there = ", ".join(sorted(subject.version_files)[:5])
        yield Finding(
            "version folder",
            f"the backend '{subject.backend}' opens {file}, there is only {there}",
            f'rename the file to {file}, or set default_model_filename: "{there.split(", ")[0]}"',
        )


def default_file_missing(subject: Subject) -> Findings:
    """`default_model_filename` names a file that is not there.

    The backend refuses the load.
    """
    file = subject.message.default_model_filename
    if file and subject.version_files and not subject.has_version_file(file):
        yield Finding(
            "default_model_filename",
            f"the version has no file '{file}'",
            "the name of the model's file in the version folder",
        )


def _other_file(subject: Subject) -> str:
    """The first file of the version that is another backend's, when its own is missing."""
    own = subject.model_file
    if not own or subject.has_version_file(own) or subject.message.default_model_filename:
        return ""
    names = (path.partition("/")[0] for path in sorted(subject.version_files))
    return next(filter(backends.backend_of_file, names), "")


def external_data_missing(subject: Subject) -> Findings:
    """Weights that the ONNX file keeps in another file, which is not there.

    ONNX Runtime refuses the load.
    """
    for location in _external(subject):
        inside = not location.startswith("/") and ".." not in location.split("/")
        if inside and not any(_ends_with(path, location) for path in subject.version_files):
            yield Finding(
                "external data",
                f"the ONNX file keeps weights in '{location}', which is not beside it",
                "add that file, or export the model as one file",
            )


def external_data_outside(subject: Subject) -> Findings:
    """Weights that the ONNX file looks for outside its folder.

    ONNX Runtime refuses such paths, and nothing outside the version is published.
    """
    for location in _external(subject):
        if location.startswith("/") or ".." in location.split("/"):
            yield Finding(
                "external data",
                f"the ONNX file keeps weights in '{location}', outside its folder",
                "keep the weights beside the ONNX file",
            )


def _external(subject: Subject) -> tuple[str, ...]:
    facts = {} if subject.signature is None else subject.signature.facts
    return tuple(facts.get("external_data", ()))


def _ends_with(path: str, location: str) -> bool:
    """Whether it is that file beside the ONNX file, which may lie in a folder `model.onnx`."""
    location = location.removeprefix("./")
    return path == location or path == f"model.onnx/{location}"


def opset_new(subject: Subject) -> Findings:
    """An operator set that the oldest ONNX Runtime of today's Tritons does not read.

    ONNX Runtime refuses a newer operator set than its own: `Opset … is under development`.
    """
    facts = {} if subject.signature is None else subject.signature.facts
    opset = facts.get("opset", {}).get("ai.onnx", 0)
    if opset > NEWEST_OPSET:
        yield Finding(
            "operator set",
            f"it is {opset}; Tritons of 25.05 to 25.07 read up to {NEWEST_OPSET}",
            "export with operator set 18, which all of them read",
        )


def graph_invalid(subject: Subject) -> Findings:
    """The checker of the ONNX package finds fault with the graph.

    ONNX Runtime mostly refuses it as well; quarantine has the last word.
    """
    facts = {} if subject.signature is None else subject.signature.facts
    if facts.get("checker"):
        yield Finding("model file", str(facts["checker"]), "export the model again")


def conversion_unverified(subject: Subject) -> Findings:
    """Its conversion to INT8 was accepted although nothing verified it.

    Triton does not look at conversion.json; the version may answer wrongly.
    """
    if subject.unverified:
        yield Finding(CONVERSION, f"not verified: {subject.unverified}", "convert with --labelled")
