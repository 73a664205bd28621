# The service alone: no shell, no package manager, nothing to log in to. `make image` builds it.
# Without a `# syntax=` line, which would need one more image to be fetched.

# The Bun that package.json pins; scripts/bun.sh refuses another. Who mirrors images, or has a digest to
# hold it to: --build-arg BUN_IMAGE=mirror.example.com/oven/bun:1.4.5@sha256:…
ARG BUN_IMAGE=oven/bun:1.4.5

FROM ${BUN_IMAGE} AS build
WORKDIR /user-api
# By itself, so that it is done again only when one of these changes.
COPY package.json bun.lock bunfig.toml ./
RUN bun install --frozen-lockfile --production --ignore-scripts
COPY tsconfig.json ./
COPY scripts scripts
COPY src src
RUN scripts/build.sh && scripts/rootfs.sh /rootfs

# `make image-test` builds this stage alone, with a folder in place of the one above.
FROM scratch
COPY --from=build /rootfs/libc/ /
COPY --from=build /rootfs/user-api /
# Last, and by itself: a COPY that finds /data in place would leave its owner as it is. A volume that is
# empty takes the owner from here.
COPY --from=build --chown=65532:65532 /rootfs/data/ /data/

# SHUTDOWN_SECONDS: `docker stop` kills after 10.
ENV DATABASE_URL=/data/user-api.db \
    HOST=0.0.0.0 \
    SHUTDOWN_SECONDS=8
VOLUME /data
EXPOSE 3000
# By number: there is no /etc/passwd, and Kubernetes cannot see that a name is not root.
USER 65532:65532
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 CMD ["/user-api", "health"]
ENTRYPOINT ["/user-api"]
CMD ["serve"]

ARG VERSION=unknown
LABEL org.opencontainers.image.title="user-api" \
      org.opencontainers.image.description="Users and orders over HTTP, in one executable and one SQLite file" \
      org.opencontainers.image.version="${VERSION}"
