# The image has only the binary and the C library: no shell and no package manager. `make image` builds it.
# There is no `# syntax=` line, because it would download one more image.

# The version of Bun that package.json pins. scripts/bun.sh rejects any other. To use a mirror or to pin a digest:
# --build-arg BUN_IMAGE=mirror.example.com/oven/bun:1.4.5@sha256:…
ARG BUN_IMAGE=oven/bun:1.4.5

FROM ${BUN_IMAGE} AS build
WORKDIR /user-api
# A layer of its own, which is rebuilt only if one of these files changes.
COPY package.json bun.lock bunfig.toml ./
RUN bun install --frozen-lockfile --production --ignore-scripts
COPY tsconfig.json ./
COPY scripts scripts
COPY src src
ARG COMMIT=unknown
RUN scripts/build.sh && scripts/rootfs.sh /rootfs

# `make image-test` builds only this stage. A directory replaces the stage above.
FROM scratch
COPY --from=build /rootfs/libc/ /
COPY --from=build /rootfs/user-api /usr/local/bin/
# The last COPY, and only for /data: COPY does not change the owner of a directory that exists already. An empty
# volume gets its owner from this directory.
COPY --from=build --chown=65532:65532 /rootfs/data/ /data/

# `docker stop` sends SIGKILL after 10 seconds, so SHUTDOWN_SECONDS must be less. By default, Bun keeps the address of a
# host name for 30 seconds, in which it would not find a database or a storage that has moved.
ENV PATH=/usr/local/bin \
    BUN_CONFIG_DNS_TIME_TO_LIVE_SECONDS=1 \
    DATABASE_URL=/data/user-api.db \
    HOST=0.0.0.0 \
    SHUTDOWN_SECONDS=8
VOLUME /data
EXPOSE 3000
# A number, because there is no /etc/passwd, and Kubernetes cannot verify that a name is not root.
USER 65532:65532
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 CMD ["user-api", "health"]
ENTRYPOINT ["user-api"]
CMD ["serve"]

ARG VERSION=unknown
ARG COMMIT=unknown
ARG CREATED=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="user-api" \
      org.opencontainers.image.description="Users and orders over HTTP, in one executable and one SQLite file" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"
