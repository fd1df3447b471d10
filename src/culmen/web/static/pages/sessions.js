import { empty } from "../parts.js";
export const title = "Sessions";
export const load = (ctx) => ctx.get("sessions", ctx.params);
export const view = () => empty("not yet");
