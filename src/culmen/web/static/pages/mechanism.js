import { empty } from "../parts.js";
export const title = "Mechanism";
export const load = (ctx) => ctx.get("mechanism", ctx.params);
export const view = () => empty("not yet");
