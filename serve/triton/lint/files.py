"""Rules about the files of a version, and which backend they are for."""

from serve.core.errors import Invalid
from serve.core.names import check_model_name
from serve.core.versions import CONVERSION
from serve.triton.lint import backends
from serve.triton.lint.subject import Findings, LintFinding, LintSubject

NEWEST_OPSET = 22  # of ONNX Runtime 1.22, which Triton 25.05 to 25.07 have; later ones read more
TENSORFLOW_END = "Triton's TensorFlow backend ended with release 25.02"


def name_invalid(subject: LintSubject) -> Findings:
    """The name contains characters other than letters, digits, '.', '_' and '-', or is too long.

    Servegate also refuses names that start with '.' or '-', and the name `stats`, which Triton
    reserves. Triton accepts names that cannot be requested over HTTP.
    """
    try:
        check_model_name(subject.name)
    except Invalid as error:
        yield LintFinding("name", f"{error.what}: {error.why}", "use another name")


def name_differs(subject: LintSubject) -> Findings:
    """`name` in config.pbtxt is not the model's name.

    Triton refuses to load the model from a folder with another name. Servegate therefore drops the
    field, and names the folder itself.
    """
    name = subject.message.name
    if name and name != subject.name:
        yield LintFinding(
            "name",
            f"the field is '{name}', but the model is named '{subject.name}'",
            "remove the field",
        )


def version_policy_ignored(subject: LintSubject) -> Findings:
    """`version_policy` is ignored.

    Servegate loads each published version by its number, as if the policy were `all`.
    """
    message = subject.message
    if message.HasField("version_policy") and not message.version_policy.HasField("all"):
        yield LintFinding(
            "version_policy",
            "it is ignored, because Servegate loads the published versions",
            "remove it",
        )


def label_file_missing(subject: LintSubject) -> Findings:
    """The label file of an output does not exist.

    Triton: `failed to open text file for read`.
    """
    for entry in subject.message.output:
        path = entry.label_filename
        if path and path not in subject.model_files and not _is_in_version(subject, path):
            yield LintFinding(
                f"output '{entry.name}'.label_filename",
                f"there is no file '{path}' next to config.pbtxt",
                "add the file, with one label per line",
            )


def label_file_misplaced(subject: LintSubject) -> Findings:
    """The label file is in the version folder, not next to config.pbtxt.

    Triton looks only next to config.pbtxt. A path with a version number breaks in the next version.
    """
    for entry in subject.message.output:
        path = entry.label_filename
        if path and path not in subject.model_files and _is_in_version(subject, path):
            yield LintFinding(
                f"output '{entry.name}'.label_filename",
                f"'{path}' is in the version folder",
                "move the file next to config.pbtxt, and set its name without a folder",
            )


def _is_in_version(subject: LintSubject, path: str) -> bool:
    first, _, rest = path.partition("/")
    return path in subject.version_files or (first.isdigit() and rest in subject.version_files)


def platform_unknown(subject: LintSubject) -> Findings:
    """Triton does not know the platform.

    Triton: `unexpected platform type`.
    """
    platform = subject.message.platform
    if platform and not subject.message.backend and platform not in backends.PLATFORMS:
        yield LintFinding(
            "platform",
            f"'{platform}' is not a platform of Triton",
            f"use one of {', '.join(sorted(backends.PLATFORMS))}, or set backend",
        )


def backend_unknown(subject: LintSubject) -> Findings:
    """NVIDIA's images do not contain the backend.

    Triton: `unable to find backend library for backend`, unless your image contains it.
    """
    backend = subject.message.backend
    if backend and backend not in backends.KNOWN:
        yield LintFinding(
            "backend",
            f"'{backend}' is not a backend of NVIDIA's images",
            f"use one of {', '.join(sorted(backends.KNOWN - {'ensemble', 'tensorflow'}))}",
        )


def backend_missing(subject: LintSubject) -> Findings:
    """There is no backend or platform, and no file name implies one.

    Triton: `Could not determine backend for model`.
    """
    message = subject.message
    named = message.backend or message.platform or subject.is_ensemble
    told = subject.backend or _is_tensorflow(subject)
    if not named and not told and subject.version_files:
        yield LintFinding(
            "backend",
            f"it is missing, and no file implies it: "
            f"{', '.join(sorted(subject.version_files)[:5])}",
            'set it, for example backend: "onnxruntime" with a file model.onnx',
        )


def platform_against_backend(subject: LintSubject) -> Findings:
    """Platform and backend contradict each other.

    Triton: `unexpected 'platform' and 'backend' pair`.
    """
    message = subject.message
    expected = backends.of_platform(message.platform)
    known = message.platform in backends.PLATFORMS and message.platform != "ensemble"
    if message.backend and known and message.backend != expected:
        yield LintFinding(
            "platform",
            f"'{message.platform}' runs on the backend '{expected}', not on '{message.backend}'",
            "remove platform",
        )


def tensorflow_ended(subject: LintSubject) -> Findings:
    """The model uses the TensorFlow backend, which Triton no longer includes.

    Triton from 25.03 on: `unable to find backend library for backend 'tensorflow'`.
    """
    if _is_tensorflow(subject):
        yield LintFinding(
            "platform", TENSORFLOW_END, "convert it to ONNX with servegate convert onnx"
        )


def _is_tensorflow(subject: LintSubject) -> bool:
    message = subject.message
    if message.backend or message.platform:
        return bool(message.platform.startswith("tensorflow_") or message.backend == "tensorflow")
    saved = any(map(subject.has_version_file, ("model.savedmodel", "saved_model.pb")))
    return saved and not subject.backend


def version_empty(subject: LintSubject) -> Findings:
    """A version folder contains no files.

    The backend refuses to load the model. Only an ensemble may have an empty version folder.
    """
    if not subject.version_files and not subject.is_ensemble:
        yield LintFinding(
            "version folder",
            "it contains no file",
            f"add the model file, as 1/{subject.model_file or 'model.onnx'}",
        )


def platform_against_file(subject: LintSubject) -> Findings:
    """The version contains a model file for a different backend.

    The backend refuses to load the model: `the model's directory has no file '1/model.onnx'`.
    """
    found = _other_file(subject)
    if found:
        yield LintFinding(
            "platform" if subject.message.platform else "backend",
            f"it needs {subject.model_file}, but the version contains {found}",
            f'set backend: "{backends.backend_of_file(found)}"',
        )


def model_file_missing(subject: LintSubject) -> Findings:
    """The file that the backend opens does not exist.

    The backend refuses to load the model.
    """
    file = subject.model_file
    missing = file and subject.version_files and not subject.has_version_file(file)
    configured = subject.message.default_model_filename
    if missing and not configured and not _other_file(subject):
        there = ", ".join(sorted(subject.version_files)[:5])
        yield LintFinding(
            "version folder",
            f"the backend '{subject.backend}' opens {file}, but there is only {there}",
            f'rename the file to {file}, or set default_model_filename: "{there.split(", ")[0]}"',
        )


def default_file_missing(subject: LintSubject) -> Findings:
    """`default_model_filename` names a file that does not exist.

    The backend refuses to load the model.
    """
    file = subject.message.default_model_filename
    if file and subject.version_files and not subject.has_version_file(file):
        yield LintFinding(
            "default_model_filename",
            f"the version has no file '{file}'",
            "use the name of the model file in the version folder",
        )


def _other_file(subject: LintSubject) -> str:
    """The first file of the version that is another backend's, when its own is missing."""
    own = subject.model_file
    if not own or subject.has_version_file(own) or subject.message.default_model_filename:
        return ""
    names = (path.partition("/")[0] for path in sorted(subject.version_files))
    return next(filter(backends.backend_of_file, names), "")


def external_data_missing(subject: LintSubject) -> Findings:
    """The ONNX file stores weights in another file, which is missing.

    ONNX Runtime refuses to load the model.
    """
    for location in _external(subject):
        inside = not location.startswith("/") and ".." not in location.split("/")
        if inside and not any(_ends_with(path, location) for path in subject.version_files):
            yield LintFinding(
                "external data",
                f"the ONNX file stores weights in '{location}', which is missing",
                "add that file, or export the model as one file",
            )


def external_data_outside(subject: LintSubject) -> Findings:
    """The ONNX file stores weights outside its folder.

    ONNX Runtime refuses such paths, and nothing outside the version is published.
    """
    for location in _external(subject):
        if location.startswith("/") or ".." in location.split("/"):
            yield LintFinding(
                "external data",
                f"the ONNX file stores weights in '{location}', outside its folder",
                "put the weights next to the ONNX file",
            )


def _external(subject: LintSubject) -> tuple[str, ...]:
    facts = {} if subject.signature is None else subject.signature.facts
    return tuple(facts.get("external_data", ()))


def _ends_with(path: str, location: str) -> bool:
    """Whether it is that file beside the ONNX file, which may lie in a folder `model.onnx`."""
    location = location.removeprefix("./")
    return path == location or path == f"model.onnx/{location}"


def opset_new(subject: LintSubject) -> Findings:
    """The opset is newer than the ONNX Runtime of some replicas supports.

    ONNX Runtime refuses a newer opset than its own: `Opset … is under development`.
    """
    facts = {} if subject.signature is None else subject.signature.facts
    opset = facts.get("opset", {}).get("ai.onnx", 0)
    if opset > NEWEST_OPSET:
        yield LintFinding(
            "operator set",
            f"it is {opset}; Triton 25.05 to 25.07 support up to {NEWEST_OPSET}",
            "export with opset 18, which all of them support",
        )


def graph_invalid(subject: LintSubject) -> Findings:
    """The ONNX checker reports an error in the graph.

    ONNX Runtime usually refuses the model as well. The quarantine test decides.
    """
    facts = {} if subject.signature is None else subject.signature.facts
    if facts.get("checker"):
        yield LintFinding("model file", str(facts["checker"]), "export the model again")


def conversion_unverified(subject: LintSubject) -> Findings:
    """The conversion to INT8 was accepted without verification.

    Triton does not read conversion.json. The version may give wrong results.
    """
    if subject.unverified:
        yield LintFinding(
            CONVERSION, f"not verified: {subject.unverified}", "convert with --labelled"
        )
