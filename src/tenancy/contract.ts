export * from './organizations/contract.ts'
export * from './partners/contract.ts'
export * from './sites/contract.ts'
