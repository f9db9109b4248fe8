/** How long a link to set a new password works. */
export const resetMinutes = 60
