# docker build --build-arg DEVICE=cuda -t rlm-plugins .      (or DEVICE=cpu)
# docker run --gpus all -v "$PWD:/work" rlm-plugins train recipe.yaml
FROM python:3.11-slim-bookworm
ARG DEVICE=cpu
# gcc: torch compiles its Triton kernels when they are first used
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY locks/${DEVICE}.txt lock.txt
RUN pip install --no-cache-dir -r lock.txt
COPY . .
RUN packages=$(for folder in plugins/*/; do case $folder in *rlm-gym/|*rlm-example/) ;; *) echo "./$folder" ;; esac; done) \
    && pip install --no-cache-dir --no-deps hatchling . $packages
ENV HF_HUB_DISABLE_TELEMETRY=1 TOKENIZERS_PARALLELISM=false
WORKDIR /work
ENTRYPOINT ["rlm"]
