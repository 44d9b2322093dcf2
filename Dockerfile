# syntax=docker/dockerfile:1
# Cross-compiles: the compiler runs on the builder's platform, so no platform is emulated.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
RUN apt-get update && apt-get install --yes --no-install-recommends jq
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
ARG COMMIT=unknown
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH make components \
    && mkdir -m 0770 /data \
    && mkdir -p /root-of-image/etc/ssl/certs \
    && mv plantstore plantstore.cdx.json licenses.txt /root-of-image/ \
    && cp /etc/ssl/certs/ca-certificates.crt /root-of-image/etc/ssl/certs/

# The binary with its licenses and its bill of materials, the CA certificates for PostgreSQL
# and JWKS over TLS, and one writable directory, for SQLite and the temporary files of imports.
FROM scratch
ARG VERSION=dev
ARG COMMIT=unknown
# The time of the commit, so that building it again gives the same image.
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="Plant Store Service" \
      org.opencontainers.image.description="An authenticated HTTP API that stores plants" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.created="$CREATED"
COPY --from=build /root-of-image /
# Group 0 may write to /data, as OpenShift, and docker run --user, choose another user of that group.
COPY --from=build --chown=65532:0 /data /data
USER 65532:65532
# The health check finds the service at the admin address, whatever --port says.
ENV PLANTSTORE_ENV=production PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:9090 TMPDIR=/data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=4s --start-period=30s CMD ["/plantstore", "healthcheck"]
ENTRYPOINT ["/plantstore"]
