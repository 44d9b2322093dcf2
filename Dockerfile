# syntax=docker/dockerfile:1
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG COMMIT=unknown
RUN CGO_ENABLED=0 go build -tags nomsgpack -trimpath \
      -ldflags "-s -w -X plantstore/cmd.version=${VERSION} -X plantstore/cmd.commit=${COMMIT}" \
      -o /root-of-image/plantstore . \
    && mkdir -p /data /root-of-image/etc/ssl/certs \
    && cp /etc/ssl/certs/ca-certificates.crt /root-of-image/etc/ssl/certs/

# The binary, the CA certificates for PostgreSQL and JWKS over TLS, and one writable
# directory, for SQLite and the temporary files of imports.
FROM scratch
COPY --from=build /root-of-image /
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
ENV PLANTSTORE_ENV=production PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:6060 TMPDIR=/data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=4s --start-period=30s CMD ["/plantstore", "healthcheck"]
ENTRYPOINT ["/plantstore"]
