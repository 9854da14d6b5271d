# The image `servegate` with the converter of TensorFlow models (TensorFlow, tf2onnx, ONNX Runtime; 2 GB more), for
# `servegate model push --convert`, `servegate convert`, pipelines, and the building kits of plans. It needs no GPU.
#
#   docker build -f k8s/images/converter.Dockerfile -t servegate-converter --build-arg SERVEGATE=servegate .
ARG SERVEGATE=servegate

FROM ${SERVEGATE}
LABEL org.opencontainers.image.title="servegate-converter" \
      org.opencontainers.image.description="Servegate with TensorFlow and ONNX, for conversions"
ARG SOURCE_DATE_EPOCH=1580601600
USER 0
COPY constraints.txt /source/
RUN pip --python /opt/servegate/bin/python install --quiet --no-cache-dir --no-compile --only-binary :all: \
      --constraint /source/constraints.txt "servegate[convert]" \
 && PYTHONHASHSEED=0 /opt/servegate/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/servegate/lib
USER 1000:1000
