/** Page where a user sets a new password. `base` is the public address of the service. */
export const resetLink = (base: string, token: string): string => link(base, 'reset-password', token)

/** Page where an invited user sets their first password. */
export const inviteLink = (base: string, token: string): string => link(base, 'accept-invite', token)

/** Page where a registration verifies its address. */
export const verifyLink = (base: string, token: string): string => link(base, 'verify-email', token)

/** Page where a user requests a link to set a new password. */
export const forgotLink = (base: string): string => pageAt(base, 'forgot-password')

/** Page where a user approves the sign-in of a terminal. */
export const deviceLink = (base: string): string => pageAt(base, 'device')

/** Page where a user signs in. */
export const loginLink = (base: string): string => pageAt(base, 'login')

function link(base: string, page: string, token: string): string {
  return `${pageAt(base, page)}?token=${encodeURIComponent(token)}`
}

function pageAt(base: string, page: string): string {
  return `${base.replace(/\/+$/, '')}/${page}`
}
