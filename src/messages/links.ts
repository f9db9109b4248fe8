/** Where a person sets a new password. `base` is the public address of the service. */
export const resetLink = (base: string, token: string): string => link(base, 'reset-password', token)

/** Where an invited person sets their first password. */
export const inviteLink = (base: string, token: string): string => link(base, 'accept-invite', token)

function link(base: string, page: string, token: string): string {
  return `${base.replace(/\/+$/, '')}/${page}?token=${encodeURIComponent(token)}`
}
