import { createSumsService, type SumsRequest } from "./sums.ts";

declare const self: Worker;

const handle = createSumsService((reply) => self.postMessage(reply));

self.onmessage = ({ data }: MessageEvent<SumsRequest>) => handle(data);
