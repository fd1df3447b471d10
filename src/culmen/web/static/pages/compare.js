import { empty } from "../parts.js";
export const title = "Compare";
export const load = (ctx) => ctx.get("compare", ctx.params);
export const view = () => empty("not yet");
