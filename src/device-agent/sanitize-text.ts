/** A text in a form that the service accepts: no NUL, no lone surrogate, not longer than `max`. */
export const sanitizeText = (text: string, max: number): string =>
  text.replaceAll('\u0000', '\ufffd').slice(0, max).toWellFormed()
