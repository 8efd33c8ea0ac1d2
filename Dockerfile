FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=""
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/fenceproxy ./cmd/fenceproxy
# Directories for an image that has no shell to make them: the marks, and /tmp for bodies that are longer than spool.memory.
RUN mkdir -p /out/root/var/lib/fenceproxy /out/root/tmp && chmod 0700 /out/root/var/lib/fenceproxy && chmod 1777 /out/root/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build --chown=65532:65532 /out/root/ /
COPY --from=build /out/fenceproxy /fenceproxy
USER 65532:65532
# Clients reach the container; operators only its inside (admin.listen is 127.0.0.1:8081 unless told otherwise).
ENV FENCEPROXY_LISTEN=0.0.0.0:8080
# The marks. Without a volume of its own they end with the container, and the fence with them.
VOLUME /var/lib/fenceproxy
EXPOSE 8080 8081
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/fenceproxy", "health"]
ENTRYPOINT ["/fenceproxy"]
CMD ["serve"]
