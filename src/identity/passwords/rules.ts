/** How long a link to set a new password works (spec, "SSO login session and codes"). */
export const resetMinutes = 60
