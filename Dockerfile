# One image for every daemon, the trust program and the command line: which of them a container is,
# its command says. Nothing in it is secret, and nothing is written at run time but /tmp and volumes.

FROM node:24-bookworm-slim AS packages
WORKDIR /app
COPY package.json package-lock.json ./
# Without the broker and the Node that the lockfile brings for machines without an image.
RUN --mount=type=cache,target=/tmp/npm npm ci --cache /tmp/npm --omit=dev --omit=optional --no-audit --no-fund --loglevel=error

FROM node:24-bookworm-slim AS app
WORKDIR /app
ENV NODE_ENV=production NODE_COMPILE_CACHE=/app/.compiled
COPY --from=packages /app/node_modules ./node_modules
COPY package.json LICENSE ./
COPY shared ./shared
COPY services ./services
COPY launcher ./launcher
COPY cli ./cli
# Each program is loaded once, and ends at its first look at the settings: what Node compiles stays in the
# image, and every start of a container finds it.
RUN for daemon in provisioner auth delivery; do COTAL_DRAIN_MS=none node "services/$daemon/main.ts" >/dev/null; \
      [ $? = 2 ] || exit 1; done; \
    node services/trust/main.ts none >/dev/null; node cli/bin.js --help >/dev/null; \
    # Whatever the mask of whoever checked it out.
    chmod -R a+rX /app

FROM node:24-bookworm-slim
LABEL org.opencontainers.image.title="cotal" \
      org.opencontainers.image.description="The coordination plane for software agents: its daemons and its command line" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV NODE_ENV=production \
    NODE_COMPILE_CACHE=/app/.compiled \
    # Decision 18: what a flood left is given back.
    MALLOC_MMAP_THRESHOLD_=16384 \
    COTAL_HEALTH_HOST=0.0.0.0 \
    COTAL_HEALTH_PORT=9464 \
    COTAL_STATE=/desk
WORKDIR /app
COPY --from=app /app /app
# A volume takes the owner of the folder that it is first mounted on.
RUN install -d -o node -g node -m 700 /state /desk /keys /keys/provisioner /keys/auth /keys/delivery /broker /broker/trust /broker/data /broker/data-2 /broker/data-3 && \
    printf '#!/bin/sh\nexec node /app/cli/bin.js "$@"\n' > /usr/local/bin/cotal && chmod 755 /usr/local/bin/cotal
USER node
STOPSIGNAL SIGTERM
EXPOSE 9464
HEALTHCHECK --interval=15s --timeout=5s --start-period=90s --start-interval=2s --retries=4 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:9464/readyz').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
CMD ["cotal", "--help"]
