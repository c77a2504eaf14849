# inferno from Debian 12: built in one stage, run in a second that has the program and its libraries alone.
#
#   docker build -t inferno .
#   docker run --rm -p 8080:8080 -v /srv/models:/models:ro -e INFERNO_API_KEY inferno serve /models/model.gguf --host 0.0.0.0
FROM debian:12 AS build
RUN apt-get update && apt-get install --yes --no-install-recommends make ca-certificates
WORKDIR /src
COPY . .
RUN make build && install -D --strip build/inferno /out/usr/local/bin/inferno

FROM debian:12-slim
# The libraries that build/inferno is linked with (ldd).
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates libfmt9 libspdlog1.10 libpcre2-8-0 libutf8proc2 \
       libhwloc15 libedit2 libcurl4 libssl3 libstdc++6 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/ /
USER nobody
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["inferno"]
CMD ["--help"]
