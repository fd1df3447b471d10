import { empty } from "../parts.js";
export const title = "Memory";
export const load = (ctx) => ctx.get("memory", ctx.params);
export const view = () => empty("not yet");
